"""A process that a supervisor started: it reports when it is ready, and does not outlive the supervisor.

It learns of the supervisor's death from a pipe, of which the supervisor alone holds the other end: the pipe
comes to its end, a thread sends this process SIGTERM, and SIGKILL where it does not end by that. The kernel's
death signal (PR_SET_PDEATHSIG) is not used beside it: a second SIGTERM means that the end is urgent.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from blink.errors import CommandError
from blink.files import CheckedPath, writable_file
from blink.stderr import LogFile
from blink.terminal import Terminal
from ringbuffer.messages import FORMATS, choose_format, say

ORPHAN_S = 60.0  # for a process whose supervisor died to end in order


def add_log_flags(parser: argparse._ActionsContainer) -> None:
    """Of a server and of its children alike."""
    parser.add_argument(
        "--log-file",
        action=CheckedPath,
        check=writable_file,
        metavar="FILE",
        help="append the log to this file, which SIGHUP opens again (default: standard error)",
    )
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=FORMATS[0],
        help="lines for people (text) or for programs (json) (default: %(default)s)",
    )


def add_child_flags(parser: argparse.ArgumentParser) -> None:
    """Flags between a supervisor and its children; users have no need of them."""
    parser.add_argument("--lease-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_log_flags(parser)


def open_log(namespace: argparse.Namespace) -> Callable[[], None]:
    """The log as the flags say. What it returns opens the log's file again, if it is one, and never raises.

    Raises CommandError when the file cannot be written.
    """
    path: Path | None = namespace.log_file
    try:
        file = LogFile(path) if path is not None else None
    except OSError as error:
        raise CommandError(f"--log-file {path}: cannot be written: {error.strerror}") from error
    choose_format(namespace.log_format)

    def reopen() -> None:
        try:
            if file is not None:
                file.reopen()
        except OSError as error:
            say("blink", f"--log-file {path}: cannot be opened again: {error.strerror}", "error")

    return reopen


def begin(namespace: argparse.Namespace) -> Callable[[], None]:
    """What a child does first. Returns what SIGHUP has to do here, beside what else is read again.

    Raises CommandError when its supervisor has ended, and as `open_log` does.
    """
    terminal, reopen_log = Terminal(), open_log(namespace)
    end_with_parent(namespace.lease_fd)

    def on_hangup() -> None:
        if terminal.is_gone():
            os.kill(os.getpid(), signal.SIGINT)
        reopen_log()

    return on_hangup


def end_with_parent(lease_fd: int | None) -> None:
    """SIGTERM comes once when the parent dies, however it dies, and SIGKILL if this process does not end.

    `lease_fd` is the end of the pipe; None: no supervisor started this process. Raises CommandError when the
    parent has died already.
    """
    if lease_fd is None:
        return
    if select.select([lease_fd], [], [], 0)[0]:
        raise CommandError("the supervisor has ended")
    threading.Thread(target=_end_with_lease, args=(lease_fd,), name="lease", daemon=True).start()


def _end_with_lease(lease_fd: int) -> None:
    os.read(lease_fd, 1)  # nobody writes: it returns when the other end is closed
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(ORPHAN_S)
    os.kill(os.getpid(), signal.SIGKILL)


def report_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready")
        os.close(ready_fd)


@cache
def _lease() -> tuple[int, int]:
    """The pipe of this process: children read its first end, and nobody inherits the second, which so closes
    with this process. A process that is forked from this one makes a pipe of its own; it keeps the first end
    of this one, which some event loops fork it to hand on."""
    ends = os.pipe()

    def forget() -> None:
        _lease.cache_clear()
        os.close(ends[1])

    os.register_at_fork(after_in_child=forget)
    return ends


async def spawn(
    command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int] = ()
) -> tuple[asyncio.subprocess.Process, int]:
    """Starts a child, which inherits these descriptors; `said_ready` takes the one that is returned with it.

    The child has a session of its own: Ctrl-C reaches the supervisor alone, which ends it in order.
    """
    lease_end, _ = _lease()
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            f"--lease-fd={lease_end}",
            f"--ready-fd={write_end}",
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            pass_fds=(write_end, lease_end, *inherited),
            start_new_session=True,  # uvloop knows no process_group
        )
    except BaseException:
        os.close(read_end)
        raise
    finally:
        os.close(write_end)
    return process, read_end


async def said_ready(read_end: int) -> bool:
    """Waits until the child has said that it serves; False when it ended without. Closes the descriptor."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(read_end))
    try:
        return bool(await reader.read())
    finally:
        transport.close()
