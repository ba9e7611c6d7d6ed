"""Answers that are held to grammars, under every scheduler, beside others that are not, and when paused."""

from __future__ import annotations

import numpy as np
import pytest
from grammar_serving import DIGITS, LANGUAGES, LETTERS, PAGE_BYTES, PROMPT, VOCAB, ask, served
from limits import WAIT_S
from regular import Node, grammar, star, then, times

from gpu_backend.schedulers.base import SchedulerKind
from ringbuffer.abi import Reason
from ringbuffer.grammar import Grammar


@pytest.mark.parametrize(
    "kind",
    [
        SchedulerKind.GPU,
        pytest.param(SchedulerKind.ASYNC, marks=pytest.mark.slow),
        pytest.param(SchedulerKind.BLOCKING, marks=pytest.mark.slow),
    ],
)
def test_answers_are_in_their_languages(kind: SchedulerKind) -> None:
    with served(kind, max_batch=8) as (_, client):
        mixed: list[Node | None] = [*LANGUAGES.values(), None]
        asked = ask(client, mixed * 3)
        for one in asked:
            one.check()
        assert sum(one.stream.reason == Reason.EOS for one in asked) > 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SchedulerKind.GPU, SchedulerKind.PIPELINED])
def test_paused_answers_go_on_in_their_grammars(kind: SchedulerKind) -> None:
    """The same tokens as with pages for all. Grammars make room for each other, too."""
    nodes: list[Node | None] = [then(times(DIGITS, 60, 60 + i), star(LETTERS)) for i in range(12)]
    found = []
    for changes in ({}, {"kv_memory": 20 * PAGE_BYTES, "grammar_memory": 8 * 4096}):
        with served(kind, max_batch=8, **changes) as (backend, client):
            asked = ask(client, nodes, 90)
            preempted = backend.ring.stats()["preempted"]
        for one in asked:
            one.check()
        found.append([one.stream.tokens for one in asked])
    assert preempted > 0
    assert found[0] == found[1]


def spoiled(block: bytes, word: int, value: int) -> bytes:
    words = np.frombuffer(block, np.uint32).copy()
    words[word] = value
    return words.tobytes()


def test_what_is_wrong_with_a_grammar_is_its_requests_alone() -> None:
    dead_end = Grammar(
        np.full(256, 1, np.uint8), np.zeros(1, np.uint32), np.array([[0, 0], [0, 0]], np.uint32), 1, 0
    ).pack()
    good = grammar(times(DIGITS, 30, 30)).pack()
    with served(SchedulerKind.GPU, max_batch=4, grammar_memory=1 << 16) as (backend, client):
        assert int(backend.ring.header["max_grammar_words"][0]) == 1 << 14
        streams = [
            client.submit(PROMPT, 8, block)
            for block in (
                good,
                spoiled(good, 5, 1 << 20),
                dead_end,
                spoiled(good, 2, 1 << 30),
                bytes(1 << 17),
                good,
            )
        ]
        client.wait(streams, WAIT_S)
        bad, dead = Reason.BAD_GRAMMAR, Reason.GRAMMAR_DEAD_END
        reasons = [stream.reason for stream in streams]
        assert reasons == [Reason.LENGTH, bad, dead, bad, bad, Reason.LENGTH]
        assert streams[0].tokens == streams[-1].tokens


def test_end_and_stop_ids_end_an_answer_that_may_end() -> None:
    """A stop id whose bytes the grammar wants is not taken for those."""
    digit = VOCAB.index(b"7")
    three = times(DIGITS, 3, 3)
    with served(SchedulerKind.GPU, max_batch=4) as (_, client):
        stop = client.submit(
            PROMPT, 20, grammar(three).pack(), n_stop_ids=1, stop_ids=(digit,), temperature=1.0
        )
        early = client.submit(PROMPT, 20, grammar(star(DIGITS)).pack(), min_tokens=5, temperature=1.0, seed=3)
        late = client.submit(PROMPT, 20, grammar(three).pack(), min_tokens=5)
        client.wait([stop, early, late], WAIT_S)
    assert stop.reason in (Reason.EOS, Reason.STOP_ID)
    assert len(b"".join(VOCAB[token] for token in stop.tokens[:-1])) == 3
    assert digit not in stop.tokens[:-1]
    assert len(early.tokens) >= 5
    assert late.reason == Reason.GRAMMAR_DEAD_END  # it may only end, and not yet
