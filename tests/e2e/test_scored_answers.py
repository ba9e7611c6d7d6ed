"""Log-probabilities and changes of logits with the reference engine, under every scheduler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from logprob_cases import CASES, SCHEDULERS, Case
from serving import serving

from ringbuffer.client import RingClient
from ringbuffer.extents import logprobs
from ringbuffer.region import Region

AGREE = 2e-4


SLOW = ("blocking", "pipelined", "async")  # as the first, in host threads


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SCHEDULERS],
)
def region(request: pytest.FixtureRequest) -> Iterator[Region]:
    name = f"logprobs-{os.getpid()}-{request.param}"
    with serving(name, f"--scheduler={request.param}", device="cpu") as (_, found):
        yield found


@pytest.mark.parametrize("check", CASES)
def test_what_is_told(region: Region, check: Callable[[Case], None]) -> None:
    client = RingClient(region)
    check(Case(region, client, AGREE))
    client.close()


@pytest.mark.slow
def test_a_paused_request_is_told_of_every_token_once() -> None:
    """Few pages: requests are preempted before and after their first tokens, and prompts scored again."""
    name = f"logprobs-{os.getpid()}-scarce"
    with serving(name, "--kv-memory=6MiB", "--max-batch=16", device="cpu") as (_, region):
        client = RingClient(region)
        case = Case(region, client, AGREE)
        prompt = (case.prompt * 2)[:90]
        alone = case.ask(prompt, 60, logprob_words=2, prompt_logprob_words=2, flags=1)
        streams = [
            client.submit(prompt[i % 2 :], 60, logprob_words=2, prompt_logprob_words=2, flags=1)
            for i in range(16)
        ]
        case.done(*streams)
        assert region.stats()["preempted"] > 0
        for stream in streams[::2]:
            assert stream.tokens == alone.tokens
            for told, expected in (
                (stream.logprobs, alone.logprobs),
                (stream.prompt_logprobs[1:], alone.prompt_logprobs[1:]),
            ):
                np.testing.assert_allclose(logprobs(told)[1], logprobs(expected)[1], atol=AGREE)
        client.close()
