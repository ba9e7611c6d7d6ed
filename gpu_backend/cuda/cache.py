"""Files that a start leaves for the next one on the same machine."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/blink, or ~/.cache/blink."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blink"


def store(path: Path, entry: bytes) -> bool:
    """Replaces a file as a whole. False where it cannot be written, as in a read-only home."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(entry)
        Path(file.name).replace(path)
    except OSError:
        return False
    return True
