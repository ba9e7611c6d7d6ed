"""What the scripts of this folder share."""

from __future__ import annotations

import importlib.metadata
import os

URL = os.environ["BLINK_URL"]
V1 = f"{URL}/v1"
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
