"""What becomes of a request of Dynamo's frontend, without Dynamo."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from blink.dynamo.request import ring_requests
from nic_frontend.api.parameters import Limits
from nic_frontend.errors import ApiError
from nic_frontend.request import Mailbox, Request
from ringbuffer.abi import MAX_STOP_IDS

LIMITS = Limits(max_context=64, prompt_heap=64, output_heap=64, vocab_size=100, max_choices=4)


def made(defaults: dict[str, Any] | None = None, **asked: Any) -> list[Request]:
    async def run() -> list[Request]:
        return ring_requests({"token_ids": [1, 2, 3], **asked}, LIMITS, defaults or {}, Mailbox(16))

    return asyncio.run(run())


def test_every_field_that_is_passed_on_reaches_the_ring() -> None:
    sampling = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "seed": 7,
    }  # fmt: skip
    stopping = {"max_tokens": 9, "min_tokens": 2, "ignore_eos": True}
    (request,) = made(sampling_options=sampling, stop_conditions=stopping)
    assert request.prompt.tolist() == [1, 2, 3]
    for name, value in {**sampling, **stopping}.items():
        assert getattr(request.sampling, name) == value


def test_what_is_left_out_is_the_model_s_or_as_much_as_fits() -> None:
    (request,) = made(
        defaults={"temperature": 0.6}, sampling_options={"temperature": None}, stop_conditions=None
    )
    assert request.sampling.temperature == 0.6
    assert request.sampling.max_tokens == 61


def test_choices_have_seeds_of_their_own() -> None:
    requests = made(sampling_options={"n": 3, "seed": 5})
    assert [(request.index, request.sampling.seed) for request in requests] == [(0, 5), (1, 6), (2, 7)]


def test_stop_ids_of_every_kind_end_the_answer() -> None:
    kinds = {"stop_token_ids": [1, 2], "stop_token_ids_hidden": [2, 3], "stop_token_ids_visible": None}
    assert made(stop_conditions=kinds)[0].sampling.stop_ids == (1, 2, 3)


def test_a_salt_keeps_caches_apart() -> None:
    plain, salted = made()[0], made(routing={"cache_salt": "a tenant"})[0]
    assert plain.sampling.salt == (0, 0)
    assert salted.sampling.salt != (0, 0)


def test_packed_tokens_are_a_prompt() -> None:
    (request,) = made(token_ids=np.array([4, 5], "<i4").tobytes())
    assert request.prompt.tolist() == [4, 5]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"sampling_options": {"guided_decoding": {"json": {}}}}, "guided_decoding"),
        ({"sampling_options": {"logit_bias": {"5": 1.0}}}, "logit_bias"),
        ({"output_options": {"logprobs": 0}}, "logprobs"),
        ({"sampling_options": {"temperature": -1}}, "temperature"),
        ({"sampling_options": {"n": 5}}, "'n'"),
        ({"stop_conditions": {"max_tokens": 62}}, "max_tokens"),
        ({"stop_conditions": {"stop_token_ids": list(range(MAX_STOP_IDS + 1))}}, "stop_token_ids"),
        ({"token_ids": []}, "token_ids"),
        ({"token_ids": list(range(64))}, "token_ids"),
        ({"token_ids": [100]}, "token_ids"),
        ({"token_ids": [-1]}, "token_ids"),
    ],
)
def test_what_is_not_served_is_refused_by_name(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(ApiError, match=named) as refused:
        made(**asked)
    assert refused.value.status == 400


def test_neutral_values_of_what_is_not_served_are_nothing() -> None:
    made(sampling_options={"logit_bias": None, "length_penalty": 1.0, "use_beam_search": False})
