"""Sizes in bytes as people write them: "8GiB", "512 MiB", "1e9"."""

from __future__ import annotations

import re

UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
LEAST_WITHOUT_UNIT = 1 << 20


def parse_bytes(text: str) -> int:
    """Bytes of a size such as "8GiB" (2^30), "8GB" (10^9), "8G" (2^30) or "4096". Raises ValueError."""
    match = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*([a-z]*)", text.strip().lower())
    try:
        if match is None:
            raise ValueError(text)
        size = int(float(match[1]) * UNITS[match[2]])
    except (KeyError, ValueError, OverflowError):
        raise ValueError(f"'{text}' is not a size; write for example 512MiB or 8GiB") from None
    if size < 1:
        raise ValueError(f"'{text}' is less than a byte")
    return size


def parse_memory(text: str) -> int:
    """As `parse_bytes`, but a number without a unit must be a likely size: who writes `8` means 8 GiB."""
    size = parse_bytes(text)
    if size < LEAST_WITHOUT_UNIT and re.fullmatch(r"[0-9.e]+", text.strip().lower()):
        raise ValueError(f"'{text}' is {size} bytes; write a unit, for example {text.strip()}GiB")
    return size


def write_bytes(size: int) -> str:
    """The size as `parse_memory` takes it."""
    return f"{size}B"


def format_bytes(size: int) -> str:
    """The size in the largest binary unit that it fills: "1.5 GiB"."""
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= scale:
            return f"{size / scale:.4g} {unit}"
    return f"{size} B"
