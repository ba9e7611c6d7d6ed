"""A process knows whether the terminal that it was started from has been closed."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from limits import PROGRAM_S, START_S, WAIT_S
from serve_process import ROOT
from waiting import wait_until

PROGRAM = """
import signal, sys
from pathlib import Path
from blink.terminal import Terminal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
if "nohup" in sys.argv:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
terminal = Terminal()
signal.signal(signal.SIGHUP, lambda *_: None)
print(terminal.is_gone(), flush=True)
signal.sigwait({signal.SIGHUP})
Path(sys.argv[1]).write_text(str(terminal.is_gone()))
"""


@pytest.mark.parametrize(("how", "gone"), [("", "True"), ("nohup", "False")])
def test_a_terminal_that_is_closed_is_gone(tmp_path: Path, how: str, gone: str) -> None:
    """Unless the process was told not to care."""
    result = tmp_path / "gone"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(result), how],
        cwd=ROOT,
        stdin=theirs,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(theirs)
        assert process.stdout is not None
        assert process.stdout.readline() == b"False\n"
        os.close(ours)
        if how:
            process.send_signal(signal.SIGHUP)  # of who rotates the log, later
        assert process.wait(PROGRAM_S) == 0
    assert result.read_text() == gone


def test_a_service_has_no_terminal_to_lose(tmp_path: Path) -> None:
    result = tmp_path / "gone"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(result)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"False\n"
        process.send_signal(signal.SIGHUP)
        assert process.wait(PROGRAM_S) == 0
    assert result.read_text() == "False"


@pytest.mark.slow
def test_a_backend_ends_with_its_terminal(tmp_path: Path) -> None:
    """It would keep its memory for nobody."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "blink", "backend", "demo", "--device=cpu", "--slots=16"]
    with subprocess.Popen(
        [*command, f"--ring=test-terminal-{os.getpid()}", f"--log-file={tmp_path / 'log'}"],
        cwd=ROOT,
        stdin=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    ) as process:
        os.close(theirs)
        log = tmp_path / "log"
        wait_until(lambda: log.exists() and "serving demo" in log.read_text(), START_S, "a backend")
        os.close(ours)
        assert process.wait(WAIT_S) == 0
