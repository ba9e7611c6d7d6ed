"""Files that a start leaves for the next one on the same machine."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """$XDG_CACHE_HOME/blink, or ~/.cache/blink."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "blink"


def store(path: Path, entry: bytes) -> bool:
    """Replaces a file as a whole. False where it cannot be written, as in a read-only home."""
    with contextlib.suppress(OSError), contextlib.ExitStack() as owned:
        path.parent.mkdir(parents=True, exist_ok=True)
        # The file gets its name when it is whole, and goes where that fails.
        file = owned.enter_context(tempfile.NamedTemporaryFile(dir=path.parent, delete=False))
        owned.callback(Path(file.name).unlink, missing_ok=True)
        file.write(entry)
        file.flush()
        Path(file.name).replace(path)
        return True
    return False
