"""A process ends with its supervisor, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S, WAIT_S
from serve_process import ROOT

PROGRAM = """
import signal, sys, time
from blink import child
child.ORPHAN_S = 0.3
{before}
child.end_with_parent(int(sys.argv[1]))
print("holds the lease", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("before", "status"),
    [("", -signal.SIGTERM), ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", -signal.SIGKILL)],
)
def test_the_end_of_the_pipe_ends_it(before: str, status: int) -> None:
    """Also where no signal came, and where the signal does not end it."""
    lease, ours = os.pipe()
    command = [sys.executable, "-c", PROGRAM.format(before=before), str(lease)]
    with subprocess.Popen(command, cwd=ROOT, pass_fds=(lease,), stdout=subprocess.PIPE) as process:
        os.close(lease)
        assert process.stdout is not None
        assert process.stdout.readline() == b"holds the lease\n"
        assert process.poll() is None
        os.close(ours)
        assert process.wait(WAIT_S) == status


def test_a_supervisor_that_has_died_already_is_noticed_at_the_start() -> None:
    lease, ours = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "blink", "backend", "demo", f"--lease-fd={lease}"],
        cwd=ROOT, pass_fds=(lease,), capture_output=True, text=True, timeout=PROGRAM_S, check=False,
    )  # fmt: skip
    os.close(lease)
    assert done.returncode == 1
    assert "the supervisor has ended" in done.stderr


COUNTS = """
import os, signal, sys, time
from blink import child
came = []
signal.signal(signal.SIGTERM, lambda *_: came.append(1))
child.end_with_parent(int(sys.argv[1]))
print(os.getpid(), flush=True)
while not came:
    time.sleep(0.01)
time.sleep(0.5)
open(sys.argv[2], "w").write(str(len(came)))
"""


def test_one_signal_tells_of_a_supervisor_that_was_killed(tmp_path: Path) -> None:
    """A second one would mean that the end is urgent, and cost the open requests."""
    result = tmp_path / "signals"
    program = (
        "import subprocess, sys, os, time\n"
        "lease, ours = os.pipe()\n"
        f"command = [sys.executable, '-c', {COUNTS!r}, str(lease), {str(result)!r}]\n"
        "subprocess.Popen(command, pass_fds=(lease,))\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        watch = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        assert select.select([watch], [], [], WAIT_S)[0], "it outlives its supervisor"
        os.close(watch)
    assert result.read_text() == "1"
