"""Log-probabilities and changes of logits through ring, scheduler and engine, under every scheduler."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from limits import WAIT_S
from serving import DEMO, serving
from tokenizers import Tokenizer

from ringbuffer.abi import Reason
from ringbuffer.client import RingClient, Stream
from ringbuffer.extents import controls, logprobs
from ringbuffer.region import Region

TOP = 5
PROMPT = "Once upon a time there was a fox named Mia. She lived in a forest and counted: 1, 2, 3, 4, 5, 6, 7."
AGREE = {"rtol": 1e-4, "atol": 1e-4}  # the same model in steps of other shapes


@pytest.fixture(scope="module", params=["gpu", "blocking", "pipelined", "async"])
def region(request: pytest.FixtureRequest) -> Iterator[Region]:
    name = f"logprobs-{os.getpid()}-{request.param}"
    with serving(name, f"--scheduler={request.param}", device="cpu") as (_, found):
        yield found


@pytest.fixture
def client(region: Region) -> Iterator[RingClient]:
    client = RingClient(region)
    yield client
    client.close()


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    return list(Tokenizer.from_file(str(DEMO / "tokenizer.json")).encode(PROMPT).ids)


def done(client: RingClient, *streams: Stream) -> None:
    client.wait(streams, WAIT_S)
    assert {stream.reason for stream in streams} <= {Reason.LENGTH, Reason.EOS}


def test_an_answer_scored_as_a_prompt_is_as_likely(client: RingClient, prompt: list[int]) -> None:
    """What is told of an answer's tokens is told again where they are a prompt's, many of them a step."""
    said = client.submit(prompt, 30, logprob_words=1 + TOP, flags=1)
    done(client, said)
    rank, first = logprobs(said.logprobs)
    assert rank[:, 0].tolist() == [1] * 30  # greedy
    assert rank[:, 1].tolist() == said.tokens
    plain = [client.submit(prompt, 40) for _ in range(3)]
    scored = client.submit(prompt + said.tokens, 1, logprob_words=1, prompt_logprob_words=1 + TOP)
    done(client, scored, *plain)
    again, second = logprobs(scored.prompt_logprobs[len(prompt) :])
    np.testing.assert_array_equal(again, rank)
    np.testing.assert_allclose(second, first, **AGREE)
    assert scored.cached == 0
    assert (np.exp(second[:, 1:]).sum(1) <= 1.0001).all()


def test_what_was_computed_for_a_score_is_found_by_others(
    client: RingClient, region: Region, prompt: list[int]
) -> None:
    text = [*reversed(prompt)] * 3
    done(client, client.submit(text, 1, prompt_logprob_words=1))
    later = client.submit(text, 1)
    done(client, later)
    has_prefix_cache = region.header["stats"]["prefix_queries"][0] > 0  # a host-driven scheduler has none
    assert later.cached >= len(text) - 32 or not has_prefix_cache


def test_controls_hold_for_every_token(client: RingClient, region: Region, prompt: list[int]) -> None:
    vocab = int(region.header["vocab_size"][0])
    free = client.submit(prompt, 8, flags=1)
    done(client, free)
    allowed = sorted({*free.tokens, 100, 200, 300} - {free.tokens[1]})
    of = controls(vocab, allowed, {200: 100.0}, [[200, 200, 200], [300]])
    held = client.submit(prompt, 12, controls=of, flags=1, logprob_words=1)
    done(client, held)
    assert set(held.tokens) <= {*allowed}
    assert held.tokens[:4] == [200, 200, held.tokens[2], 200]
    assert held.tokens[2] not in (200, 300)
    assert (logprobs(held.logprobs)[1] < 0).all()


def test_many_at_once_and_none_disturbs_the_other(client: RingClient, prompt: list[int]) -> None:
    alone = client.submit(prompt, 20, logprob_words=3, temperature=1.0, seed=5)
    done(client, alone)
    streams = [
        client.submit(
            prompt[: len(prompt) - i % 3], 20, logprob_words=i % 4, prompt_logprob_words=i % 3, seed=i
        )
        for i in range(12)
    ]
    again = client.submit(prompt, 20, logprob_words=3, temperature=1.0, seed=5)
    done(client, again, *streams)
    assert again.tokens == alone.tokens
    np.testing.assert_allclose(logprobs(again.logprobs)[1], logprobs(alone.logprobs)[1], **AGREE)
    for i, stream in enumerate(streams):
        assert stream.logprobs.shape == ((len(stream.tokens), i % 4) if i % 4 else (0, 0))
        if i % 3:
            assert (logprobs(stream.prompt_logprobs[1:])[1] < 0.001).all()
