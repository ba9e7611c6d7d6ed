"""Which version of blink this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    """The installed package's; a checkout that is run in place says so."""
    try:
        return importlib.metadata.version("blink-serving")
    except importlib.metadata.PackageNotFoundError:
        return "(in place, not installed)"
