"""A process ends with its supervisor, however that ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

import pytest
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
        assert process.wait(20) == status


def test_a_supervisor_that_has_died_already_is_noticed_at_the_start() -> None:
    lease, ours = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [sys.executable, "-m", "blink", "backend", "demo", f"--lease-fd={lease}"],
        cwd=ROOT, pass_fds=(lease,), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    os.close(lease)
    assert done.returncode == 1
    assert "the supervisor has ended" in done.stderr


def test_the_death_signal_ends_it_without_the_pipe() -> None:
    program = (
        "import subprocess, sys, os, signal, time\n"
        "lease, ours = os.pipe()\n"
        "os.set_inheritable(ours, True)\n"  # the pipe has no end while the child itself holds it
        f"child = subprocess.Popen([sys.executable, '-c', {PROGRAM.format(before='')!r}, str(lease)],"
        " pass_fds=(lease, ours), stdout=subprocess.PIPE)\n"
        "print(child.stdout.readline().decode().strip(), child.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline().rsplit(b" ", 1)[1])
        watch = os.pidfd_open(pid)
        parent.kill()
        assert select.select([watch], [], [], 20)[0], "it outlives its supervisor"
        os.close(watch)
