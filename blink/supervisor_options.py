"""The options of a supervisor: the commands that it runs, and how long it waits for them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    """The commands get --lease-fd and --ready-fd appended (child.py). Times are in seconds."""

    backend: Sequence[str]
    frontend: Sequence[str]
    n_frontends: int
    environment: dict[str, str]
    ring: Path
    host: str
    port: int
    listener: socket.socket | None = None  # a Unix socket that all frontends accept from, in place of a port
    url: str
    backend_restarts: int  # in a row, that a backend is started again which does not stay up
    start_timeout_s: float
    drain_s: float  # that the frontends give open requests
    frontend_end_s: float  # from SIGTERM to SIGKILL
    backend_end_s: float
