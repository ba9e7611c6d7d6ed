"""scripts/bench/tokenizing.py: its texts, and that both sides find the same."""

from __future__ import annotations

import asyncio

import pytest
from bench.tokenizing import compare, corpus, cut, measure, report

from blink.model_directory import demo_directory


def test_texts_begin_and_end_where_tokens_do() -> None:
    text = "a bb ccc dddd"
    places = [(0, 1), (1, 4), (4, 8), (8, 13)]
    found = cut(text, places, 2, 3)
    assert sorted(found) == [" bb ccc", " ccc dddd", "a bb"]
    assert found == cut(text, places, 2, 3)
    with pytest.raises(ValueError, match="1 different parts of 4 tokens, which is too few for 2"):
        cut(text, places, 4, 2)


def test_no_two_texts_are_the_same() -> None:
    text = "ab" * 10
    places = [(at, at + 1) for at in range(20)]
    assert sorted(cut(text, places, 3, 2)) == ["aba", "bab"]
    with pytest.raises(ValueError, match="2 different parts of 3 tokens"):
        cut(text, places, 3, 3)


def test_sides_that_disagree_are_refused_and_no_text_comes_twice() -> None:
    seen: list[str] = []

    async def right(text: str) -> int:
        seen.append(text)
        return len(text)

    async def wrong(text: str) -> int:
        return len(text) + (text == "d")

    texts = ["a", "b", "c", "d"]
    found = asyncio.run(compare({"right": right}, texts, rounds=1))
    assert sorted(seen) == texts
    assert len(found["right"]) == 1
    with pytest.raises(ValueError, match="the sides find different tokens"):
        asyncio.run(compare({"right": right, "wrong": wrong}, texts, rounds=1))


def test_the_demo_model_is_measured() -> None:
    assert len(corpus()) > 500_000
    found = asyncio.run(measure(demo_directory(), (10, 32), rounds=1))
    assert [row["tokens"] for row in found["rows"]] == [10, 32]
    assert all(row["cpu_us"][side]["n"] == 1 for row in found["rows"] for side in ("blink", "tokenizers"))
    about = {"model": "demo", "machine": "here", "date": "today", "commit": "abc"}
    assert "times as fast" in report(about | found)
