"""When, of what and where a measurement was made: what every record begins with."""

from __future__ import annotations

import datetime
import subprocess
from typing import Any


def said(*command: str) -> str:
    """What the command prints; empty where it is not there or has no answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def of_gpu(field: str) -> str:
    """A field of `nvidia-smi --query-gpu` of the first GPU; empty where there is none."""
    return said("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits", "--id=0")


def origin(what: str, machine: str, commit: str | None) -> dict[str, Any]:
    """`machine`: the device's name. `commit`: None for what git says."""
    return {
        "what": what,
        "date": datetime.date.today().isoformat(),
        "commit": commit or said("git", "rev-parse", "--short", "HEAD") or "unknown",
        "machine": machine,
        "driver": of_gpu("driver_version"),
    }
