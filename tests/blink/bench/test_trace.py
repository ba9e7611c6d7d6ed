"""Traces have the statistics that they claim, and a seed decides them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blink.bench.prompts import MAX_PROMPT, Prompts
from blink.bench.trace import CHAT_INPUT, CHAT_OUTPUT, Lengths, endless, lengths, poisson


@pytest.mark.parametrize("chosen", [CHAT_INPUT, CHAT_OUTPUT, Lengths(1024, 0.0, 1024, 1024)], ids=str)
def test_a_sample_has_its_mean_and_its_bounds(chosen: Lengths) -> None:
    sample = chosen.sample(2000, np.random.default_rng(1))
    assert sample.mean() == pytest.approx(chosen.mean, abs=0.6)
    assert chosen.low <= sample.min()
    assert sample.max() <= chosen.high


def test_lengths_are_lognormal_within_their_bounds() -> None:
    sample = Lengths(1000, 0.5, 1, 100_000).sample(20_000, np.random.default_rng(2))
    logs = np.log(sample)
    assert logs.std() == pytest.approx(0.5, rel=0.03)
    assert np.mean((logs - logs.mean()) ** 3) / logs.std() ** 3 == pytest.approx(0.0, abs=0.1)


def test_arrivals_are_poisson() -> None:
    trace = poisson(50.0, 200.0, 3, CHAT_INPUT, CHAT_OUTPUT)
    gaps = np.diff(trace.arrivals_s)
    assert len(trace) == pytest.approx(10_000, rel=0.04)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.05)  # 1 for an exponential
    per_second = np.histogram(trace.arrivals_s, bins=200, range=(0, 200))[0]
    assert per_second.var() / per_second.mean() == pytest.approx(1.0, abs=0.3)  # 1 for Poisson
    assert trace.arrivals_s.max() < 200.0


def test_a_seed_decides_the_trace_and_the_prompts() -> None:
    def made(seed: int) -> tuple[str, str]:
        return poisson(5.0, 20.0, seed, CHAT_INPUT, CHAT_OUTPUT).digest(), Prompts(seed, 5, 99).ids(7, 50)

    assert made(1) == made(1)
    assert made(1)[0] != made(2)[0]
    assert made(1)[1] != made(2)[1]


def test_rates_share_their_arrivals_up_to_scale() -> None:
    slow, fast = (poisson(rate, 100.0, 1, CHAT_INPUT, CHAT_OUTPUT) for rate in (2.0, 4.0))
    assert slow.arrivals_s[:100] == pytest.approx(2 * fast.arrivals_s[:100])


PROMPTS = {span: Prompts(1, *span) for span in ((0, 2), (100, 1000), (7, 151_936))}


@settings(deadline=None)  # other load on the machine decides how long one takes
@given(st.integers(1, 3000), st.integers(0, 10**9), st.sampled_from(sorted(PROMPTS)))
def test_a_prompt_is_an_array_of_n_tokens_in_range(n: int, index: int, span: tuple[int, int]) -> None:
    prompt = json.loads(f"[{PROMPTS[span].ids(index, n)}]")
    assert len(prompt) == n
    assert all(span[0] <= token < span[1] for token in prompt)


@pytest.mark.parametrize("span", sorted(PROMPTS))
def test_a_prompt_may_fill_a_context_of_131072(span: tuple[int, int]) -> None:
    assert len(json.loads(f"[{PROMPTS[span].ids(3, MAX_PROMPT)}]")) == MAX_PROMPT == 131_071
    with pytest.raises(ValueError, match="can be made"):
        PROMPTS[span].ids(3, MAX_PROMPT + 1)


def test_no_two_prompts_have_a_common_beginning() -> None:
    prompts = Prompts(1, 100, 1000)
    beginnings = {tuple(prompts.ids(i, 1024).split(",")[:4]) for i in range(5000)}
    assert len(beginnings) == 5000


def test_prompts_that_run_together_are_not_alike() -> None:
    """In a closed loop all have one length."""
    prompts = [json.loads(f"[{PROMPTS[7, 151_936].ids(i, 1024)}]") for i in range(64)]
    for i, one in enumerate(prompts):
        for other in prompts[:i]:
            assert sum(a == b for a, b in zip(one, other, strict=True)) < 8


@pytest.mark.parametrize("text", ["", "0", "x", "10:1", "10:1:20-30", "10:1:0-30", "10:1:1-9"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no length|does not hold"):
        lengths(text)


@pytest.mark.parametrize("chosen", [CHAT_INPUT, Lengths(7, 0.0, 7, 7)], ids=str)
def test_a_length_reads_back(chosen: Lengths) -> None:
    assert lengths(str(chosen)) == chosen


def test_a_closed_loops_trace_has_its_histogram() -> None:
    summary = endless(512, 1, CHAT_INPUT, CHAT_OUTPUT).summary()
    assert sum(summary["input_tokens"]["counts"]) == summary["requests"] == 512
    assert summary["output_tokens"]["mean"] == pytest.approx(463, abs=0.6)
