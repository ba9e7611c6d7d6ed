"""A port for a server that cannot choose one itself."""

from __future__ import annotations

import contextlib
import random
import socket


def free_port() -> int:
    """Below 32,768: the system gives clients none of those, and NVIDIA Dynamo can hold no higher one."""
    while True:
        port = random.randrange(20_000, 32_768)
        with socket.socket() as chosen, contextlib.suppress(OSError):
            chosen.bind(("127.0.0.1", port))
            return port
