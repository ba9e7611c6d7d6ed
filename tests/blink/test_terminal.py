"""A process knows whether the terminal that it was started from has been closed."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

from limits import PROGRAM_S
from serve_process import ROOT

PROGRAM = """
import signal, sys
from pathlib import Path
from blink.terminal import Terminal

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
terminal = Terminal()
print(terminal.is_gone(), flush=True)
signal.sigwait({signal.SIGHUP})
Path(sys.argv[1]).write_text(str(terminal.is_gone()))
"""


def test_a_terminal_that_is_closed_is_gone(tmp_path: Path) -> None:
    result = tmp_path / "gone"
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(result)],
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
        assert process.wait(PROGRAM_S) == 0
    assert result.read_text() == "True"


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
        process.send_signal(1)
        assert process.wait(PROGRAM_S) == 0
    assert result.read_text() == "False"
