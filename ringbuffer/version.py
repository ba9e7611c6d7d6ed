"""Which blink this is, and how it gets the packages of an extra."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

DISTRIBUTION = "blink-serving"
ROOT = Path(__file__).resolve().parent.parent


def version() -> str:
    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "(in place, not installed)"


def install(extra: str) -> str:
    """What to run for the packages of an extra of pyproject.toml: the end of a message, in one line.

    No version of blink is on a package index yet, so the line begins with what works without one.
    """
    from_source = f"pip install '.[{extra}]' in"
    if (ROOT / "pyproject.toml").is_file():
        return f"{from_source} this checkout, or scripts/setup {extra} for its .venv"
    return f"{from_source} a checkout, or, once released, pip install '{DISTRIBUTION}[{extra}]'"
