"""Addresses: the one that the frontends of one `blink serve` share, and where a ring on another host is."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from blink.errors import CommandError


def reserve(host: str, port: int) -> socket.socket:
    """A bound socket that never listens: while it is open, only sockets with SO_REUSEPORT can take the port.

    Port 0 becomes a free one. Raises CommandError when the port is taken or the host is not of this machine.
    """
    _bound(host, port, reuse=False).close()  # refused where another server, even one of ours, listens
    return _bound(host, port, reuse=True)


VERBS = "verbs://"


def host_port(text: str) -> tuple[str, int]:
    """HOST:PORT, an IPv6 address in brackets. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"'{text}' is not HOST:PORT; an IPv6 address goes in brackets")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"'{text}' is not HOST:PORT")
    return host.strip("[]"), int(port)


def verbs_address(text: str) -> tuple[str, int]:
    """verbs://HOST:PORT. Raises ValueError."""
    if not text.startswith(VERBS):
        raise ValueError(f"'{text}' is not the address of a ring on another host: {VERBS}HOST:PORT")
    return host_port(text.removeprefix(VERBS))


def url(host: str, port: int, *, tls: bool = False) -> str:
    return f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"


@contextlib.contextmanager
def explained(host: str, port: int) -> Iterator[None]:
    """Turns an OSError of a bind into a CommandError that says what to do; others pass."""
    try:
        yield
    except OSError as error:
        advice = _advice(host, port, error)
        if advice is None or error.filename is not None:
            raise
        raise CommandError(advice) from error


def _advice(host: str, port: int, error: OSError) -> str | None:
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine: use --host 127.0.0.1 or 0.0.0.0"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is in use by another process: choose another with --port, or 0 for any"
    if error.errno == errno.EACCES:
        return f"no permission to listen on port {port}: choose one above 1023 with --port"
    return None


def _bound(host: str, port: int, *, reuse: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse)
    try:
        with explained(host, port):
            found.bind((host, port))
    except BaseException:
        found.close()
        raise
    return found
