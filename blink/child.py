"""A process that a supervisor started: it reports when it is ready, and does not outlive the supervisor.

It learns of the supervisor's death twice. The kernel sends a signal (PR_SET_PDEATHSIG), and a pipe, of which
the supervisor alone holds the other end, comes to its end. The pipe tells it also to a process that had not
asked for the signal yet, and whoever does not end by the signal is killed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import signal
import threading
import time

from blink.errors import CommandError

PR_SET_PDEATHSIG = 1  # linux/prctl.h
ORPHAN_S = 60.0  # for a process whose supervisor died to end in order


def add_child_flags(parser: argparse.ArgumentParser) -> None:
    """Flags between a supervisor and its children; users have no need of them."""
    parser.add_argument("--lease-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)


def end_with_parent(lease_fd: int | None) -> None:
    """SIGTERM comes when the parent dies, however it dies, and SIGKILL if this process does not end then.

    `lease_fd` is the end of the pipe; None: no supervisor started this process. Raises CommandError when the
    parent has died already.
    """
    if lease_fd is None:
        return
    ask_for_death_signal()
    if select.select([lease_fd], [], [], 0)[0]:
        raise CommandError("the supervisor has ended")
    threading.Thread(target=_end_with_lease, args=(lease_fd,), name="lease", daemon=True).start()


def ask_for_death_signal() -> None:
    """SIGTERM comes when the thread that started this process ends, if it has not yet."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end_with_lease(lease_fd: int) -> None:
    os.read(lease_fd, 1)  # nobody writes: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_S)
    os.kill(os.getpid(), signal.SIGKILL)


def report_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready")
        os.close(ready_fd)
