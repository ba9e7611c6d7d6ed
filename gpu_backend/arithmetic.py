"""Whole numbers."""

from __future__ import annotations


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def power_of_two(least: int) -> int:
    """The smallest power of two of at least `least`."""
    return 1 << max(least - 1, 0).bit_length()
