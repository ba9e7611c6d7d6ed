"""What the scripts of this folder share."""

from __future__ import annotations

import importlib.metadata
import os
from pathlib import Path
from typing import Literal

URL = os.environ["BLINK_URL"]
V1 = f"{URL}/v1"
STORING_V1 = f"{os.environ.get('BLINK_STORING_URL', '')}/v1"  # of a server that stores responses
DEMO = str(Path(__file__).resolve().parents[3] / "models/demo")  # the model that the emulation serves
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "name of a city"}},
    "required": ["city"],
}


try:
    from pydantic import BaseModel
except ImportError:  # the client has no use for it
    pass
else:

    class Pet(BaseModel):
        name: str
        age: int | None

    class Person(BaseModel):
        """A person and its pets."""

        name: str
        age: int
        kind: Literal["child", "adult"]
        pets: list[Pet]


def weather(city: str) -> str:
    """The weather in a city."""
    return f"rain in {city}"


def versions(*packages: str) -> str:
    return ", ".join(f"{package} {importlib.metadata.version(package)}" for package in packages)
