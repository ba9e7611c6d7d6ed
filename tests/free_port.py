"""A port for a server that cannot choose one itself."""

from __future__ import annotations

import random
import socket

_reserved: list[socket.socket] = []


def free_port() -> int:
    """Below 32,768: the system gives clients none of those, and NVIDIA Dynamo can hold no higher one. Nobody
    else who asks here is given it, as long as this process lives."""
    while True:
        port = random.randrange(20_000, 32_768)
        reservation = socket.socket(socket.AF_UNIX)
        try:
            reservation.bind(f"\0blink-test-port-{port}")
            with socket.socket() as chosen:
                chosen.bind(("127.0.0.1", port))
        except OSError:
            reservation.close()
            continue
        _reserved.append(reservation)
        return port
