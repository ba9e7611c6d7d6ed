"""Whole numbers."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
