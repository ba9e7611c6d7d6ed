"""Answers that are held to grammars, under every scheduler, beside others that are not, and when paused."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from limits import WAIT_S
from regular import Node, either, grammar, matches, one_of, star, text, then, times

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from gpu_backend.schedulers.base import SchedulerKind
from ringbuffer.abi import Reason
from ringbuffer.client import RingClient, Stream
from ringbuffer.grammar import Grammar, Walk
from ringbuffer.region import Region
from ringbuffer.token_bytes import answer_bytes

PAGE_BYTES = 2 * 4 * 6 * 2 * 64 * 16  # of the demo model: two, fp32, layers, KV heads, dimension, tokens
VOCAB = answer_bytes(demo_directory(), 1024) or []
PROMPT = [0, 4, 70, 71, 72, 5]
DIGITS, LETTERS = one_of(b"0123456789"), one_of(b"abcdefghijklmnopqrstuvwxyz")
STRING = one_of(bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\'))
QUOTED = then(text(b'"'), then(times(STRING, 0, 40), text(b'"')))
LANGUAGES = {
    "choice": either(text(b"yes"), either(text(b"no"), text("vielleicht, später".encode()))),
    "number": then(one_of(b"123456789"), times(DIGITS, 0, 30)),
    "words": then(LETTERS, star(either(LETTERS, text(b" ")))),
    "object": then(
        text(b'{"name": '), then(QUOTED, then(text(b', "age": '), then(times(DIGITS, 1, 3), text(b"}"))))
    ),
}


@dataclass
class Asked:
    language: Node | None
    stream: Stream

    def check(self) -> None:
        """Whole, where it has ended by itself; else what it has can be gone on with."""
        assert self.stream.reason in (Reason.EOS, Reason.LENGTH), self.stream.reason
        if self.language is None:
            return
        said = b"".join(VOCAB[token] for token in self.stream.tokens)
        if self.stream.reason == Reason.EOS:
            assert matches(self.language, said), said
        else:
            assert Walk(grammar(self.language)).step_all(said), said


@contextmanager
def served(kind: SchedulerKind, **changes: Any) -> Iterator[tuple[Backend, RingClient]]:
    name = f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}"
    backend = Backend(
        BackendOptions(
            demo_directory(), ring=name, device="cpu", slots=64, scheduler=kind, threads=1, **changes
        )
    )
    backend.start()
    assert isinstance(backend.ring, Region)
    client = RingClient(backend.ring)
    try:
        yield backend, client
    finally:
        client.close()
        assert backend.stop(0.0)


def ask(client: RingClient, languages: Sequence[Node | None], max_tokens: int = 60) -> list[Asked]:
    blocks = {node: grammar(node).pack() for node in languages if node}
    asked = [
        Asked(
            node,
            client.submit(
                [*PROMPT, 100 + i],
                max_tokens,
                node and blocks[node],
                temperature=i % 3 / 2,
                seed=i,
                top_p=0.95,
            ),
        )
        for i, node in enumerate(languages)
    ]
    client.wait([one.stream for one in asked], WAIT_S)
    return asked


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


@pytest.mark.parametrize(
    "kind", [SchedulerKind.GPU, pytest.param(SchedulerKind.PIPELINED, marks=pytest.mark.slow)]
)
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
