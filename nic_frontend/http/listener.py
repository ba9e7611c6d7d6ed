"""The socket that a frontend accepts connections on, and how it leaves those that share its port.

A listening socket that is closed resets what waits in its queue. So a frontend that ends lets no more
connections in, serves what is in the queue, and only then closes. A client that it did not let in tries again
after a second, as TCP does, and comes to another frontend.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

from nic_frontend.options import FrontendOptions

BACKLOG = 2048
SO_ATTACH_FILTER = 26  # asm-generic/socket.h


class Instruction(ctypes.Structure):
    """struct sock_filter (linux/filter.h)."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("yes", ctypes.c_uint8),
        ("no", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.POINTER(Instruction)))


LOAD_BYTE, TEST_BITS, RETURN = 0x30, 0x45, 0x06
FLAGS_AT, SYN = 13, 2  # of a TCP header
NO_SYN = (Instruction * 4)(
    Instruction(LOAD_BYTE, 0, 0, FLAGS_AT),
    Instruction(TEST_BITS, 0, 1, SYN),
    Instruction(RETURN, 0, 0, 0),  # is not let in
    Instruction(RETURN, 0, 0, 0xFFFFFFFF),
)


def listen(options: FrontendOptions) -> socket.socket:
    """A bound TCP socket.

    What is set here is inherited by the accepted ones. Raises OSError when the address is taken.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, options.send_buffer_bytes)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(options.send_timeout_s * 1000))
        listener.bind((options.host, options.port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


@contextlib.contextmanager
def listening_at(path: Path, send_buffer_bytes: int | None = None) -> Iterator[socket.socket]:
    """A Unix socket at this path, which several processes may accept from; its file is removed at the end.
    The umask says who may connect.

    Raises OSError where the path cannot be taken, as where another server has it. The file of a server that
    was killed is replaced.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener:
        if send_buffer_bytes is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        _remove_abandoned(path)
        try:
            listener.bind(str(path))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None  # Python's does not say where
        made = os.stat(path)
        try:
            listener.listen(BACKLOG)
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(path), made):  # else somebody else has the path now
                    path.unlink()


def _remove_abandoned(path: Path) -> None:
    """Removes a Unix socket that nobody listens on. Raises FileExistsError for anything else."""
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            raise FileExistsError(f"{path} exists and is no socket")
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asked:
            asked.setblocking(False)  # it is refused at once if the queue is full
            with contextlib.suppress(BlockingIOError):
                asked.connect(str(path))
        raise FileExistsError(f"another server listens at {path}")
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        path.unlink(missing_ok=True)


def let_nobody_in(listener: socket.socket) -> None:
    """From now on nothing new comes to its queue. Where the kernel cannot do that, it is served, or reset.
    Whoever else accepts from a Unix socket has the same queue, which stays open for them."""
    if listener.family == socket.AF_UNIX:
        return
    with contextlib.suppress(OSError):
        listener.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(Program(len(NO_SYN), NO_SYN)))
