"""CRC-32C in Python: for tests and benchmarks, which need no library for it."""

from __future__ import annotations

from functools import cache


@cache
def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


def crc32c(data: bytes) -> int:
    """CRC-32C (RFC 3720 appendix B.4)."""
    table, value = _crc_table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF
