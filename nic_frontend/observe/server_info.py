"""What `GET /server_info` tells of a server, and `GET /load` of what it has to do."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from nic_frontend.options import FrontendOptions
from ringbuffer.version import version
from ringbuffer.words import text

SECRET = ("api_key", "seal_key")
IN_URL = re.compile(r"://[^/?#\s]*@")  # the user and the password that a URL may have
OF_RING = ("n_slots", "max_batch", "max_context", "total_pages", "page_size", "vocab_size", "priorities")


def server_info(options: FrontendOptions, names: tuple[str, ...], header: np.void) -> dict[str, Any]:
    """As JSON has it. Of secrets it tells only whether there are any."""
    return {
        "version": version(),
        "model": names[0],
        "model_aliases": list(names[1:]),
        "device": text(header["device_name"].tobytes()),
        "limits": {name: int(header[name]) for name in OF_RING},
        "frontend": {
            field.name: _told(field.name, getattr(options, field.name))
            for field in dataclasses.fields(options)
        },
    }


def _told(name: str, value: Any) -> Any:
    if name in SECRET:
        return value is not None
    if isinstance(value, tuple):
        return [_told(name, one) for one in value]
    if value is None or isinstance(value, bool | int | float):
        return value
    return IN_URL.sub("://", str(value))


def load(stats: np.void) -> dict[str, int]:
    """How many requests are with the scheduler, in all and by what they do, and the memory that is left."""
    running, waiting = int(stats["running"]), int(stats["waiting"])
    pages = {name: int(stats[name]) for name in ("free_pages", "cached_pages")}
    return {"server_load": running + waiting, "running": running, "waiting": waiting, **pages}
