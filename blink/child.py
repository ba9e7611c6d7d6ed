"""A process that a supervisor started: it reports when it is ready, and does not outlive the supervisor."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
from collections.abc import Mapping, Sequence

from blink.errors import CommandError
from ringbuffer.messages import FORMATS, choose_format

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def add_log_format_flag(parser: argparse._ActionsContainer) -> None:
    """Of a server and of its children alike."""
    parser.add_argument(
        "--log-format",
        choices=FORMATS,
        default=FORMATS[0],
        help="lines for people (text) or for programs (json) (default: %(default)s)",
    )


def add_child_flags(parser: argparse.ArgumentParser) -> None:
    """Flags between a supervisor and its children; users have no need of them."""
    parser.add_argument("--parent-pid", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--ready-fd", type=int, help=argparse.SUPPRESS)
    add_log_format_flag(parser)


def begin(namespace: argparse.Namespace) -> None:
    """What a child does first. Raises CommandError when its supervisor has ended."""
    choose_format(namespace.log_format)
    end_with_parent(namespace.parent_pid)


def end_with_parent(parent_pid: int | None) -> None:
    """SIGTERM comes when the parent dies, however it dies. Raises CommandError when it already has."""
    if parent_pid is None:
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        raise CommandError("the supervisor has ended")


def report_ready(ready_fd: int | None) -> None:
    if ready_fd is not None:
        os.write(ready_fd, b"ready")
        os.close(ready_fd)


async def spawn(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[asyncio.subprocess.Process, int]:
    """Starts a child; `said_ready` takes the descriptor that is returned with it.

    The child has a session of its own: Ctrl-C reaches the supervisor alone, which ends it in order.
    """
    read_end, write_end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            f"--parent-pid={os.getpid()}",
            f"--ready-fd={write_end}",
            stdin=asyncio.subprocess.DEVNULL,
            env=environment,
            pass_fds=(write_end,),
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
