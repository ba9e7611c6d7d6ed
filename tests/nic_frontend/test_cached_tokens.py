"""What the API says and asks of the prefix cache: cached tokens in every usage, salts, and metrics."""

from __future__ import annotations

from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, StartBackend, StartFrontend, error_of
from mock_backend import MockBackend
from mock_row import Row
from sse import events
from test_scraped_metrics import scrape

pytestmark = pytest.mark.usefixtures("kept_frontend")

ENDPOINTS = [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)]
CONTINUOUS = {"include_usage": True, "continuous_usage_stats": True}
TEN = list(range(10, 20))


def ask(frontend: Frontend, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = frontend.client.post(path, json=body).json()
    return answer


def cached(usage: dict[str, Any]) -> int:
    assert list(usage["prompt_tokens_details"]) == ["cached_tokens"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
def test_every_usage_says_what_was_cached(
    frontend: Frontend, backend: MockBackend, path: str, body: dict[str, Any]
) -> None:
    backend.cached_tokens = 1
    assert cached(ask(frontend, path, body)["usage"]) == 1
    streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
    assert cached(events(frontend.client.post(path, json=streamed))[-1]["usage"]) == 1
    chunks = events(frontend.client.post(path, json={**streamed, "stream_options": CONTINUOUS}))
    assert [cached(chunk["usage"]) for chunk in chunks] == [1] * len(chunks)


def test_the_prompts_are_added_up_each_once(frontend: Frontend, backend: MockBackend) -> None:
    """Whatever the prompts' choices found: what one of them computed was not cached for the prompt."""
    by_seed = {40: 0, 41: 8}  # the first choice of each prompt computes it, the second finds it

    def found(row: Row) -> int:
        assert row.descriptor is not None
        return 4 if len(row.prompt) == 5 else by_seed[int(row.descriptor["seed"])]

    backend.cached_tokens = found
    body = {"prompt": [TEN, TEN[:5]], "n": 2, "seed": 40, "max_tokens": 2}
    usage = ask(frontend, "/v1/completions", body)["usage"]
    assert (usage["prompt_tokens"], cached(usage)) == (15, 0 + 4)
    streamed = {**body, "stream": True, "stream_options": CONTINUOUS}
    *chunks, last = events(frontend.client.post("/v1/completions", json=streamed))
    assert cached(last["usage"]) == 4
    of_choices = {chunk["choices"][0]["index"]: cached(chunk["usage"]) for chunk in chunks}
    assert of_choices == {0: 0, 1: 8, 2: 4, 3: 4}


def test_no_more_is_cached_than_there_is(frontend: Frontend, backend: MockBackend) -> None:
    backend.cached_tokens = 1000
    usage = ask(frontend, "/v1/completions", {"prompt": TEN, "max_tokens": 1})["usage"]
    assert (usage["prompt_tokens"], cached(usage)) == (10, 10)


def test_a_slot_forgets_what_its_last_request_found(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_slots=16)
    backend.cached_tokens = 8
    frontend = start_frontend(backend)
    body = {"prompt": [TEN] * 16, "max_tokens": 1}
    assert cached(ask(frontend, "/v1/completions", body)["usage"]) == 16 * 8
    backend.cached_tokens = 0
    assert cached(ask(frontend, "/v1/completions", body)["usage"]) == 0


def salt_of(frontend: Frontend, backend: MockBackend, path: str, body: dict[str, Any]) -> tuple[int, int]:
    assert frontend.client.post(path, json=body).status_code == 200
    descriptor = backend.accepted[-1].descriptor
    assert descriptor is not None
    first, second = descriptor["salt"].tolist()
    return first, second


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *ENDPOINTS,
        ("/v1/responses", {"input": "hi", "max_output_tokens": 1}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}),
    ],
)
def test_a_salt_reaches_the_scheduler(
    frontend: Frontend, backend: MockBackend, path: str, body: dict[str, Any]
) -> None:
    assert salt_of(frontend, backend, path, body) == (0, 0)
    assert salt_of(frontend, backend, path, {**body, "cache_salt": None}) == (0, 0)
    found = {salt: salt_of(frontend, backend, path, {**body, "cache_salt": salt}) for salt in ("a", "b", "é")}
    assert len({(0, 0), *found.values()}) == 4
    assert salt_of(frontend, backend, path, {**body, "cache_salt": "a"}) == found["a"]


def test_the_salt_of_a_lone_surrogate_is_served(frontend: Frontend, backend: MockBackend) -> None:
    """JSON can escape half a character, which has no UTF-8."""
    body = b'{"prompt": "x", "max_tokens": 1, "cache_salt": "\\ud800"}'
    headers = {"content-type": "application/json"}
    assert frontend.client.post("/v1/completions", content=body, headers=headers).status_code == 200
    descriptor = backend.accepted[-1].descriptor
    assert descriptor is not None
    assert descriptor["salt"].tolist() != [0, 0]


def test_all_choices_have_the_salt(frontend: Frontend, backend: MockBackend) -> None:
    body = {"prompt": [TEN, TEN], "n": 2, "max_tokens": 1, "cache_salt": "tenant"}
    assert frontend.client.post("/v1/completions", json=body).status_code == 200
    salts = {tuple(row.descriptor["salt"].tolist()) for row in backend.accepted if row.descriptor is not None}
    assert len(backend.accepted) == 4
    assert len(salts) == 1


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize("salt", ["", 5, ["a"], True, {}])
def test_what_is_no_salt_is_refused(frontend: Frontend, path: str, body: dict[str, Any], salt: Any) -> None:
    error = error_of(frontend.client.post(path, json={**body, "cache_salt": salt}), 400)
    assert error["param"] == "cache_salt"
    assert "a string" in error["message"] or "not be empty" in error["message"]


def test_metrics(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    backend = start_backend()
    frontend = start_frontend(backend)
    stats = backend.region.header["stats"][0]
    values = {
        "prefix_queries": 90,
        "prefix_hits": 64,
        "free_pages": 75,
        "cached_pages": 70,
        "longest_turn_ns": 19000,
    }
    for name, value in values.items():
        stats[name] = value
    stats["prefix_lookups"], stats["prefix_lookup_ns"] = 3, 4500
    backend.cached_tokens = 8
    ask(frontend, "/v1/completions", {"prompt": TEN, "n": 2, "max_tokens": 2})
    found = scrape(frontend)
    assert found["blink:prefix_cache_queries_total", ""] == 90
    assert found["blink:prefix_cache_hits_total", ""] == 64
    assert found["blink:kv_cache_usage_perc", ""] == 0.25  # idle cached pages are free for whoever needs them
    assert found["blink:scheduler_free_pages", ""] == 75
    assert found["blink:scheduler_cached_pages", ""] == 70
    assert found["blink:scheduler_longest_turn_ns", ""] == 19000
    assert found["blink:scheduler_prefix_lookups_total", ""] == 3
    assert found["blink:scheduler_prefix_lookup_ns_total", ""] == 4500
    assert found["blink:prompt_tokens_total", ""] == 20
    assert found["blink:prompt_tokens_cached_total", ""] == 16
    assert found["blink:request_prefill_kv_computed_tokens_count", ""] == 2
    assert found["blink:request_prefill_kv_computed_tokens_sum", ""] == 4


@pytest.mark.parametrize("stream", [False, True])
def test_what_others_have_sent_can_be_kept_from_clients(
    start_backend: StartBackend, start_frontend: StartFrontend, stream: bool
) -> None:
    """The number says whose prompts began alike. With a salt, these are the client's own."""
    backend = start_backend()
    frontend = start_frontend(backend, hide_cached_tokens=True)
    backend.cached_tokens = 1
    options = {"stream": True, "stream_options": CONTINUOUS} if stream else {}

    def told(path: str, body: dict[str, Any]) -> set[int]:
        answer = frontend.client.post(path, json={**body, **options})
        return {cached(part["usage"]) for part in (events(answer) if stream else [answer.json()])}

    for path, body in ENDPOINTS:
        assert told(path, body) == {0}
        assert told(path, {**body, "cache_salt": "mine"}) == {1}
    assert frontend.service.metrics.prompt_tokens_cached == 4
