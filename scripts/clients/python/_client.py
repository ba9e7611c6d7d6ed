"""What the scripts of this folder share."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path

URL = os.environ["BLINK_URL"]
V1 = f"{URL}/v1"
DEMO = str(Path(__file__).resolve().parents[3] / "models/demo")  # the model that the emulation serves
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "name of a city"}},
    "required": ["city"],
}


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def versions(*packages: str) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
