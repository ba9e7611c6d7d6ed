"""Sizes in bytes, as flags take them and messages tell them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blink.sizes import format_bytes, parse_bytes, parse_memory


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8GiB", 8 << 30),
        ("8 gib", 8 << 30),
        ("1.5G", 3 << 29),
        ("8GB", 8 * 10**9),
        ("4096", 4096),
        ("1e6", 10**6),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(("text", "size"), [("8B", 8), ("1KiB", 1024), ("2e9", 2 * 10**9)])
def test_memory_with_a_unit_or_of_a_likely_size(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "8 gigs", "-1", "0", "1.2.3", "inf", "1e400"])
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a size|less than a byte"):
        parse_bytes(text)


@given(st.integers(1, 2**50))
def test_a_formatted_size_reads_back(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == pytest.approx(size, rel=1e-3)
