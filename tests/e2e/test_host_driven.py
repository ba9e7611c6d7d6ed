"""The host-driven schedulers serve what the GPU's scheduler serves, token by token, over HTTP."""

from __future__ import annotations

import pytest
from demo_client import Reply, ask, chat, completion, items, right
from serve_process import Serve, ServeProcess

TASKS = ("add", "count", "sort_words", "table", "unicode", "memory")
SHARE = 0.95


MANY = [item for task in TASKS for item in items(task, 5, seed=12)] + items("count_long", 2)
MANY_CALLS = [chat(item, stream=True) for item in MANY]
MANY_CALLS += [completion(item, seed=i, temperature=0.9) for i, item in enumerate(MANY)]
PAUSED_CALLS = [chat(item) for item in items("count", 24) + items("table", 4) + items("repeat", 8)]


@pytest.fixture(scope="module")
def many_expected(server: ServeProcess) -> list[Reply]:
    return ask(server.url, MANY_CALLS, clients=24)


@pytest.fixture(scope="module")
def paused_expected(server: ServeProcess) -> list[Reply]:
    return ask(server.url, PAUSED_CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["blocking", "pipelined", "async"])
def test_answers_are_the_same_under_every_scheduler(
    many_expected: list[Reply], serve: Serve, scheduler: str
) -> None:
    """Many at once, with arrivals while others run, long answers that other rows are added to, and draws."""
    replies = ask(serve(f"--scheduler={scheduler}").url, MANY_CALLS, clients=24)
    assert [(r.text, r.finish_reason, r.tokens) for r in replies] == [
        (r.text, r.finish_reason, r.tokens) for r in many_expected
    ]
    assert sum(right(MANY, replies[: len(MANY)])) >= SHARE * len(MANY)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["blocking", "pipelined", "async"])
def test_paused_requests_lose_nothing(paused_expected: list[Reply], serve: Serve, scheduler: str) -> None:
    """64 pages, and the rows want three times that: they are preempted, and pages change hands."""
    scarce = serve(f"--scheduler={scheduler}", "--kv-memory=6MiB", "--max-batch=16")
    replies = ask(scarce.url, PAUSED_CALLS)
    assert scarce.idle_stats()["preempted"] > 0
    assert [reply.text for reply in replies] == [reply.text for reply in paused_expected]
