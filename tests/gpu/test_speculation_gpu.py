"""Speculation on the GPU's own scheduler: right answers while drafts share steps with prompts, over HTTP."""

from __future__ import annotations

import json

import pytest
from demo_model.tasks import check
from serving import Demo, items, serving

pytest.importorskip("uvicorn", reason="the frontend needs uvicorn")
pytest.importorskip("httpx", reason="needs an HTTP client")
from http_server import answers, serve_http

CONFIG = {"method": "ngram", "num_speculative_tokens": 6, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
SPECULATES = ("--speculative-config", json.dumps(CONFIG))
TASKS = ("copy", "sort_words", "reverse", "fact", "lookup_long", "count", "memory", "unicode", "repeat")
CHOSEN = [*items(TASKS, 120), *items(("count_long", "table"), 24)]


@pytest.mark.parametrize("more", [(), ("--batch-invariant",)], ids=["plain", "batch-invariant"])
def test_the_answers_are_the_same(more: tuple[str, ...]) -> None:
    """Requests arrive while others decode, so most steps have both. Shapes differ, and with them the logits'
    last bits: the demo model's margins make that invisible nearly always."""
    with serve_http() as url:
        expected = answers(url, CHOSEN)
    with serve_http(*SPECULATES, *more) as url:
        texts = answers(url, CHOSEN)
    same = sum(text == wanted for text, wanted in zip(texts, expected, strict=True))
    assert same >= len(CHOSEN) - 2
    assert sum(check(item, text) for item, text in zip(CHOSEN, texts, strict=True)) >= 0.95 * len(CHOSEN)


def test_drafts_while_pages_run_out() -> None:
    """A KV cache for a few long answers only: sequences with drafts are paused and resumed."""
    chosen = items(("count_long", "table", "repeat"), 48)
    with serving("speculating-tight", "--kv-memory", "8MiB", *SPECULATES) as (_, region):
        demo = Demo(region)
        streams = demo.answer(chosen)
        stats = region.stats()
        assert stats["preempted"] > 0
        assert 0 < stats["accepted_tokens"] <= stats["draft_tokens"]
        assert stats["steps"] < stats["tokens"]
        assert sum(demo.right(item, s) for item, s in zip(chosen, streams, strict=True)) >= 0.9 * len(chosen)
        demo.client.close()
