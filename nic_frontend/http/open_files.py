"""The number of files, so also of connections, that this process may have open."""

from __future__ import annotations

import resource


def allow_most() -> int:
    """Raises the limit as far as an ordinary user may, and returns it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most
