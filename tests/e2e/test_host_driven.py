"""The host-driven schedulers serve what the GPU's scheduler serves, token by token, over HTTP."""

from __future__ import annotations

import pytest
from demo_client import ask, chat, completion, items, right
from serve_process import Serve, ServeProcess

TASKS = ("add", "count", "sort_words", "table", "unicode", "memory")
SHARE = 0.95


@pytest.mark.parametrize("scheduler", ["blocking", "pipelined", "async"])
def test_answers_are_the_same_under_every_scheduler(
    server: ServeProcess, serve: Serve, scheduler: str
) -> None:
    """Many at once, with arrivals while others run, long answers that other rows are added to, and draws."""
    chosen = [item for task in TASKS for item in items(task, 5, seed=12)] + items("count_long", 2)
    calls = [chat(item, stream=True) for item in chosen]
    calls += [completion(item, seed=i, temperature=0.9) for i, item in enumerate(chosen)]
    expected = ask(server.url, calls, clients=24)
    replies = ask(serve(f"--scheduler={scheduler}").url, calls, clients=24)
    assert [(r.text, r.finish_reason, r.tokens) for r in replies] == [
        (r.text, r.finish_reason, r.tokens) for r in expected
    ]
    assert sum(right(chosen, replies[: len(chosen)])) >= SHARE * len(chosen)


@pytest.mark.parametrize("scheduler", ["blocking", "pipelined", "async"])
def test_paused_requests_lose_nothing(server: ServeProcess, serve: Serve, scheduler: str) -> None:
    """64 pages, and the rows want three times that: they are preempted, and pages change hands."""
    calls = [chat(item) for item in items("count", 24) + items("table", 4) + items("repeat", 8)]
    scarce = serve(f"--scheduler={scheduler}", "--kv-memory=6MiB", "--max-batch=16")
    replies, expected = ask(scarce.url, calls), ask(server.url, calls)
    assert scarce.stats()["preempted"] > 0
    assert [reply.text for reply in replies] == [reply.text for reply in expected]
