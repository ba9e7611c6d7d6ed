"""Answers with speculation are those without, to the last token and log-probability, in fewer steps."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from demo_client import Body, items
from limits import WAIT_S
from serve_process import ServeProcess

CONFIG = {"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}
BY_SUFFIX = {"method": "suffix", "num_speculative_tokens": 5}
FLAGS = ("--max-batch=16", "--max-prefill-tokens=256")
TASKS = ("repeat", "copy", "count_long", "lookup_long", "story", "table", "unicode", "spell")
WAYS: dict[str, Body] = {
    "greedy": {"temperature": 0},
    "sampled": {"temperature": 0.9, "top_p": 0.95, "top_k": 40},
    "penalised": {"temperature": 0.7, "repetition_penalty": 1.2, "frequency_penalty": 0.2},
    "penalised for presence": {"temperature": 0.7, "presence_penalty": 0.3},
    "told": {"temperature": 0.5, "logprobs": 3},
    "late": {"temperature": 0, "min_tokens": 30},
    "stopped": {"temperature": 0, "stop": ["the", "7 8"]},
    "ended by a token": {"temperature": 1, "stop_token_ids": [5, 9, 300, 301, 302]},
    "biased": {"temperature": 0.8, "logit_bias": {"40": 2, "41": -100}, "bad_words": [" the", "1 2"]},
    "endless": {"temperature": 0, "ignore_eos": True},
    "short": {"temperature": 0, "max_tokens": 3},
    "held to a schema": {
        "temperature": 0.8,
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "numbers",
                "schema": {"type": "array", "items": {"enum": [10, 11, 12]}, "minItems": 6, "maxItems": 12},
            },
        },
    },
    "held to an expression": {"temperature": 0.9, "structured_outputs": {"regex": "(ab|ba|abba){8,20}"}},
}  # fmt: skip

FAST = ("greedy", "told", "held to a schema")


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[ServeProcess, ServeProcess]]:
    """One that does not speculate, and one that does."""
    with ExitStack() as owned:
        plain, speculating = (
            ServeProcess(*FLAGS),
            ServeProcess(*FLAGS, f"--speculative-config={json.dumps(CONFIG)}"),
        )
        for process in (plain, speculating):
            owned.callback(process.close)
        yield plain.wait_ready(), speculating.wait_ready()


@pytest.fixture(scope="module")
def by_suffix() -> Iterator[ServeProcess]:
    """One that looks drafts up by suffix."""
    process = ServeProcess(*FLAGS, f"--speculative-config={json.dumps(BY_SUFFIX)}")
    try:
        yield process.wait_ready()
    finally:
        process.close()


def bodies(way: str, n: int, seed: int) -> list[Body]:
    rng = random.Random(f"{way} {seed}")
    fields = {"max_tokens": 80, **WAYS[way]}
    return [
        {
            "prompt": items(rng.choice(TASKS), 1, rng.random())[0].prompt,
            "seed": rng.randrange(1 << 40),
            **fields,
        }
        for _ in range(n)
    ]


def answers(server: ServeProcess, asked: list[Body]) -> list[Any]:
    """What each is told: its choice, and how many tokens that is."""

    def ask(body: Body) -> Any:
        answer = server.client.post("/v1/completions", json=body)
        assert answer.status_code == 200, answer.text
        choice, usage = answer.json()["choices"][0], answer.json()["usage"]
        return choice, usage["completion_tokens"]

    with ThreadPoolExecutor(32) as threads:
        return list(threads.map(ask, asked))


def counted(server: ServeProcess, name: str) -> float:
    text = httpx.get(f"{server.url}/metrics", timeout=WAIT_S).text
    return next(
        float(line.split()[-1]) for line in text.splitlines() if line.startswith(f"blink:{name}_total{{")
    )


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=() if way in FAST else pytest.mark.slow) for way in WAYS]
)
def test_the_same_answers(servers: tuple[ServeProcess, ServeProcess], way: str) -> None:
    plain, speculating = servers
    asked = bodies(way, 12, 1)
    assert answers(speculating, asked) == answers(plain, asked)


def test_drafts_are_counted(servers: tuple[ServeProcess, ServeProcess]) -> None:
    """Steps that take longer than their drafts save are not run, so on a busy machine there may be few; the
    first ones are always tried. That right drafts save steps is shown by drafts.cpp, in virtual time."""
    plain, speculating = servers
    speculating.idle_stats()
    before = {name: counted(speculating, name) for name in ("scheduler_steps", "scheduler_tokens")}
    asked = [{"prompt": "1 2 3 4 5 6 7 8 " * 4, "max_tokens": 100, "temperature": 0, "ignore_eos": True}]
    assert answers(speculating, asked) == answers(plain, asked)
    speculating.idle_stats()
    steps = counted(speculating, "scheduler_steps") - before["scheduler_steps"]
    tokens = counted(speculating, "scheduler_tokens") - before["scheduler_tokens"]
    assert steps <= tokens == 100
    drafts, accepted = (
        counted(speculating, f"spec_decode_num_{name}") for name in ("drafts", "accepted_tokens")
    )
    assert 0 < accepted <= counted(speculating, "spec_decode_num_draft_tokens")
    assert 0 < drafts <= counted(speculating, "spec_decode_num_draft_tokens")
    assert counted(plain, "spec_decode_num_drafts") == 0


def test_the_same_answers_by_suffix(
    servers: tuple[ServeProcess, ServeProcess], by_suffix: ServeProcess
) -> None:
    """Some of whose drafts were right, in a text that repeats itself."""
    plain, _ = servers
    asked = [body for way in ("greedy", "sampled") for body in bodies(way, 6, 3)]
    asked += [{"prompt": "1 2 3 4 5 6 7 8 " * 4, "max_tokens": 100, "temperature": 0, "ignore_eos": True}]
    assert answers(by_suffix, asked) == answers(plain, asked)
    by_suffix.idle_stats()
    assert counted(by_suffix, "spec_decode_num_accepted_tokens") > 0
    assert counted(by_suffix, "spec_decode_num_accepted_tokens") <= counted(
        by_suffix, "spec_decode_num_draft_tokens"
    )


def test_one_request_that_is_cancelled_harms_no_other(servers: tuple[ServeProcess, ServeProcess]) -> None:
    """A client that leaves while its drafts are checked, beside one whose answer is compared."""
    plain, speculating = servers
    asked = bodies("endless", 8, 2)
    with ThreadPoolExecutor(8) as threads:

        def leave(body: Body) -> None:
            with speculating.client.stream(
                "POST", "/v1/completions", json={**body, "max_tokens": 400, "stream": True}
            ) as stream:
                next(stream.iter_lines())

        leaving = [threads.submit(leave, body) for body in asked]
        found = answers(speculating, asked)
        for future in leaving:
            future.result()
    assert found == answers(plain, asked)
