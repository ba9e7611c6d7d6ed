"""Which blink this is."""

from __future__ import annotations

import importlib.metadata


def version() -> str:
    try:
        return importlib.metadata.version("blink-serving")
    except importlib.metadata.PackageNotFoundError:
        return "(in place, not installed)"
