"""What scripts/test-needs has fetched for tests, which fetch nothing themselves (BLINK_NO_DOWNLOADS)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = ROOT / "scripts" / "test-needs"
MISSING = 77  # exit status of a script that lacks something


def with_need(name: str, *command: str) -> list[str]:
    """The command, where it finds what `name` stands for."""
    return [str(PROGRAM), name, "--", *command]


def skip_if_missing(name: str, done: subprocess.CompletedProcess[str]) -> None:
    """Skips the test where a script has ended because something is not there, with what the set-up said."""
    if done.returncode != MISSING:
        return
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    record = cache / "blink" / "needs" / name
    why = record.read_text() if record.exists() else done.stderr.strip().splitlines()[-1]
    pytest.skip(f"{why.strip()} (to repeat the set-up: scripts/test-needs {name})")
