"""Log-probabilities and changes of logits through ring, scheduler and engine.

Each check is a test of the GPU's scheduler and engine, and of the emulation's, under every scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from limits import WAIT_S
from serving import DEMO
from tokenizers import Tokenizer

from ringbuffer.abi import Reason, RequestFlags
from ringbuffer.client import RingClient, Stream
from ringbuffer.extents import controls, logprobs
from ringbuffer.region import Region

SCHEDULERS = ("gpu", "blocking", "pipelined", "async")
TOP = 5
TEXT = "Once upon a time there was a fox named Mia. She lived in a forest and counted: 1, 2, 3, 4, 5, 6, 7."
GOES_ON = {"flags": RequestFlags.IGNORE_EOS}


@dataclass
class Case:
    """`agree`: by how much log-probabilities may differ that steps of other shapes have computed."""

    region: Region
    client: RingClient
    agree: float

    @property
    def prompt(self) -> list[int]:
        return list(Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(TEXT).ids)

    def ask(self, prompt: list[int], max_tokens: int, **params: object) -> Stream:
        stream = self.client.submit(prompt, max_tokens, **params)  # type: ignore[arg-type]
        self.done(stream)
        return stream

    def done(self, *streams: Stream) -> None:
        self.client.wait(streams, WAIT_S)
        assert {stream.reason for stream in streams} <= {Reason.LENGTH, Reason.EOS}


def an_answer_scored_as_a_prompt_is_as_likely(case: Case) -> None:
    """What is told of an answer's tokens is told again where they are a prompt's, many of them a step."""
    prompt = case.prompt
    said = case.ask(prompt, 30, logprob_words=1 + TOP, **GOES_ON)
    rank, first = logprobs(said.logprobs)
    assert rank[:, 0].tolist() == [1] * 30  # greedy
    assert rank[:, 1].tolist() == said.tokens
    beside = [case.client.submit(prompt, 40) for _ in range(3)]
    scored = case.client.submit(prompt + said.tokens, 1, logprob_words=1, prompt_logprob_words=1 + TOP)
    case.done(scored, *beside)
    again, second = logprobs(scored.prompt_logprobs[len(prompt) :])
    np.testing.assert_allclose(second[:, 0], first[:, 0], atol=case.agree)
    assert np.mean(again[:, 0] == 1) > 0.8
    assert (np.diff(second[:, 1:], axis=1) <= 0).all()
    assert (np.exp(second[:, 1:]).sum(1) <= 1.0001).all()
    assert scored.cached == 0
    if case.agree < 0.01:
        np.testing.assert_array_equal(again, rank)


def what_was_computed_for_a_score_is_found_by_others(case: Case) -> None:
    text = [*reversed(case.prompt)] * 3
    case.ask(text, 1, prompt_logprob_words=1)
    later = case.ask(text, 1)
    if case.region.stats()["prefix_queries"] > 0:  # a host-driven scheduler has no prefix cache
        assert later.cached >= len(text) - 32


def controls_hold_for_every_token(case: Case) -> None:
    vocab = int(case.region.header["vocab_size"][0])
    free = case.ask(case.prompt, 8, **GOES_ON)
    allowed = sorted({*free.tokens, 100, 200, 300} - {free.tokens[1]})
    of = controls(vocab, allowed, {200: 100.0}, [[200, 200, 200], [300]])
    held = case.ask(case.prompt, 12, controls=of, logprob_words=1, **GOES_ON)
    assert set(held.tokens) <= {*allowed}
    assert held.tokens[:4] == [200, 200, held.tokens[2], 200]
    assert held.tokens[2] not in (200, 300)
    assert (logprobs(held.logprobs)[1] < 0).all()


def many_at_once_and_none_disturbs_the_other(case: Case) -> None:
    prompt, drawn = case.prompt, {"logprob_words": 3, "temperature": 1.0, "seed": 5}
    alone = case.ask(prompt, 20, **drawn)
    streams = [
        case.client.submit(prompt[i % 3 :], 20, logprob_words=i % 4, prompt_logprob_words=i % 3, seed=i)
        for i in range(12)
    ]
    again = case.client.submit(prompt, 20, **drawn)  # type: ignore[arg-type]
    case.done(again, *streams)
    if case.agree < 0.01:  # else a last bit may have decided otherwise
        assert again.tokens == alone.tokens
        np.testing.assert_allclose(logprobs(again.logprobs)[1], logprobs(alone.logprobs)[1], atol=case.agree)
    for i, stream in enumerate(streams):
        assert stream.logprobs.shape == ((len(stream.tokens), i % 4) if i % 4 else (0, 0))
        if i % 3:
            assert (logprobs(stream.prompt_logprobs[1:])[1] < 0.001).all()


def a_long_prompt_is_scored_beside_answers(case: Case) -> None:
    """Step by step, while others get their tokens; every token is told, whichever step it was in."""
    prompt = (case.prompt * 12)[:700]
    beside = [case.client.submit(case.prompt, 60, **GOES_ON) for _ in range(4)]  # type: ignore[arg-type]
    scored = case.client.submit(prompt, 2, prompt_logprob_words=2)
    case.done(scored, *beside)
    alone = case.ask(prompt, 2, prompt_logprob_words=2)
    first, second = logprobs(scored.prompt_logprobs[1:])[1], logprobs(alone.prompt_logprobs[1:])[1]
    np.testing.assert_allclose(first[:, 0], second[:, 0], atol=case.agree)
    assert all(len(stream.tokens) == 60 for stream in beside)


CASES = (
    an_answer_scored_as_a_prompt_is_as_likely,
    what_was_computed_for_a_score_is_found_by_others,
    controls_hold_for_every_token,
    many_at_once_and_none_disturbs_the_other,
    a_long_prompt_is_scored_beside_answers,
)
