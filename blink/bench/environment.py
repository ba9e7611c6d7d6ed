"""Where and with what a measurement was made."""

from __future__ import annotations

import dataclasses
import os
import platform
from pathlib import Path
from typing import Any

from ringbuffer.version import version

SECRET = ("api_key",)


def describe() -> dict[str, Any]:
    """Of the machine and process that made the load."""
    return {
        "blink": version(),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cores_allowed": sorted(os.sched_getaffinity(0)),
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )


def plain(options: Any) -> dict[str, Any]:
    """An options dataclass as JSON has it, without what is secret and without directories."""
    fields = dataclasses.asdict(options)
    return {
        name: value.name if isinstance(value, Path) else value
        for name, value in fields.items()
        if name not in SECRET
    }
