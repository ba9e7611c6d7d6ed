"""What becomes of a request of Dynamo's frontend, without Dynamo."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from tiny_model import VOCAB_SIZE, write_model

from blink.dynamo.request import ring_requests
from nic_frontend.api.limits import Limits
from nic_frontend.api.served import Served
from nic_frontend.compiling.store import Grammars
from nic_frontend.errors import ApiError
from nic_frontend.observe.metrics import Metrics
from nic_frontend.parsing.registry import choose
from nic_frontend.ring.request import Mailbox, Request
from nic_frontend.text.tokenizer import Tokenizer
from ringbuffer.abi import MAX_STOP_IDS, RequestFlags
from ringbuffer.grammar import accepts, unpack

LIMITS = Limits(max_context=64, prompt_heap=64, output_heap=1024, vocab_size=100, max_choices=4)


TAG = {"structures": [{"begin": "<n>", "schema": {"type": "integer"}, "end": "</n>"}], "triggers": ["<n"]}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer(write_model(tmp_path_factory.mktemp("model")), VOCAB_SIZE)


class Make:
    """Makes the ring's requests of Dynamo's, for a model that may think."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def __call__(self, defaults: dict[str, Any] | None = None, **asked: Any) -> list[Request]:
        async def run() -> list[Request]:
            grammars = Grammars(1 << 16, Metrics())
            served = Served("tiny", self._tokenizer, LIMITS, choose("none", "think", None), None, grammars)
            try:
                return await ring_requests(
                    {"token_ids": [1, 2, 3], **asked}, served, defaults or {}, Mailbox(16)
                )
            finally:
                grammars.close()

        return asyncio.run(run())


@pytest.fixture
def made(tokenizer: Tokenizer) -> Make:
    return Make(tokenizer)


def taken(request: Request, *texts: str) -> list[bool]:
    """Which of the texts the answer may be."""
    assert request.grammar is not None
    return [accepts(unpack(request.grammar), text.encode()) for text in texts]


def test_every_field_that_is_passed_on_reaches_the_ring(made: Make) -> None:
    sampling = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1,
        "presence_penalty": 0.2, "frequency_penalty": 0.3, "seed": 7,
    }  # fmt: skip
    stopping = {"max_tokens": 9, "min_tokens": 2, "ignore_eos": True}
    (request,) = made(sampling_options=sampling, stop_conditions=stopping)
    assert request.prompt.tolist() == [1, 2, 3]
    seed = sampling.pop("seed")
    assert request.sampling.values == {**sampling, "priority": 0}
    for name, value in {"seed": seed, **stopping}.items():
        assert getattr(request.sampling, name) == value


def test_what_is_left_out_is_the_model_s_or_as_much_as_fits(made: Make) -> None:
    (request,) = made(
        defaults={"temperature": 0.6}, sampling_options={"temperature": None}, stop_conditions=None
    )
    assert request.sampling.values["temperature"] == 0.6
    assert request.sampling.max_tokens == 61


def test_choices_have_seeds_of_their_own(made: Make) -> None:
    requests = made(sampling_options={"n": 3, "seed": 5})
    assert [(request.index, request.sampling.seed) for request in requests] == [(0, 5), (1, 6), (2, 7)]


def test_stop_ids_of_every_kind_end_the_answer(made: Make) -> None:
    kinds = {"stop_token_ids": [1, 2], "stop_token_ids_hidden": [2, 3], "stop_token_ids_visible": None}
    assert made(stop_conditions=kinds)[0].sampling.stop_ids == (1, 2, 3)


def test_log_probabilities(made: Make) -> None:
    (request,) = made(output_options={"logprobs": 2, "prompt_logprobs": 0})
    assert (request.sampling.logprobs, request.sampling.prompt_logprobs) == (2, 0)
    assert made(output_options={"logprobs": None})[0].sampling.logprobs is None


def test_changes_of_logits(made: Make) -> None:
    (request,) = made(sampling_options={"logit_bias": {5: 1.5}, "allowed_token_ids": [5, 6]})
    controls = request.sampling.controls
    assert controls.n_biases == 1
    assert controls.flags == RequestFlags.ALLOWS
    (passed_on,) = made(extra_args={"sampling_options": {"logit_bias": {"5": 1.5}}})
    assert passed_on.sampling.controls.n_biases == 1


@pytest.mark.parametrize(
    ("guided", "good", "bad"),
    [
        ({"json": {"type": "integer"}, "backend": "xgrammar", "regex": None}, "12", "1.5"),
        ({"json": '{"type": "integer"}'}, "12", "x"),
        ({"regex": "[ab]+", "choice": []}, "abba", ""),
        ({"choice": ["yes", "no"]}, "no", "maybe"),
        ({"grammar": 'root ::= "a" root | "b"'}, "aab", "a"),
        ({"json_object": True}, "{}", "[]"),
        ({"structural_tag": TAG}, "x<n>1</n>", "<n>x"),
    ],
)
def test_a_guided_answer_has_its_form(made: Make, guided: dict[str, Any], good: str, bad: str) -> None:
    requests = made(sampling_options={"guided_decoding": guided, "n": 2})
    assert [taken(request, good, bad) for request in requests] == [[True, False]] * 2


def test_guided_decoding_that_asks_for_nothing(made: Make) -> None:
    for guided in (None, {}, {"json": None, "choice": [], "backend": "guidance"}):
        assert made(sampling_options={"guided_decoding": guided})[0].grammar is None


def test_thoughts_come_first_where_dynamo_splits_them_off(made: Make) -> None:
    guided = {"sampling_options": {"guided_decoding": {"choice": ["yes"]}}}
    texts = "yes", "<think>Well... </think>\n\nyes", "Well... </think>\n\nyes"
    assert taken(made(**guided)[0], *texts) == [True, False, False]
    assert taken(made(**guided, require_reasoning=True)[0], *texts) == [True, True, False]


def test_a_salt_keeps_caches_apart(made: Make) -> None:
    plain, salted = made()[0], made(routing={"cache_salt": "a tenant"})[0]
    assert plain.sampling.salt == (0, 0)
    assert salted.sampling.salt != (0, 0)


def test_packed_tokens_are_a_prompt(made: Make) -> None:
    (request,) = made(token_ids=np.array([4, 5], "<i4").tobytes())
    assert request.prompt.tolist() == [4, 5]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"sampling_options": {"guided_decoding": {"json": {"type": "x"}}}}, "at #/type"),
        ({"sampling_options": {"guided_decoding": {"whitespace_pattern": " "}}}, "whitespace_pattern"),
        ({"sampling_options": {"guided_decoding": {"regex": "a", "choice": ["b"]}}}, "exclude"),
        (
            {
                "sampling_options": {"guided_decoding": {"regex": "a"}},
                "stop_conditions": {"ignore_eos": True},
            },
            "ignore_eos",
        ),
        (
            {"sampling_options": {"guided_decoding": {"regex": "[0-9]"}, "allowed_token_ids": [5]}},
            "'allowed_token_ids' and 'guided_decoding' contradict",
        ),
        ({"sampling_options": {"logit_bias": {"100": 1.0}}}, "logit_bias"),
        ({"sampling_options": {"length_penalty": 0.5}}, "length_penalty"),
        ({"extra_args": {"sampling_options": {"bad_words_token_ids": [[1]]}}}, "bad_words_token_ids"),
        ({"output_options": {"logprobs": 21}}, "logprobs"),
        ({"output_options": {"prompt_logprobs": -1}}, "prompt_logprobs"),
        ({"output_options": {"logprobs": 20}, "stop_conditions": {"max_tokens": 60}}, "logprobs"),
        ({"stop_conditions": {"max_thinking_tokens": 5}}, "max_thinking_tokens"),
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
def test_what_is_not_served_is_refused_by_name(made: Make, asked: dict[str, Any], named: str) -> None:
    with pytest.raises(ApiError, match=named) as refused:
        made(**asked)
    assert refused.value.status == 400


def test_neutral_values_of_what_is_not_served_are_nothing(made: Make) -> None:
    neutral = {"logit_bias": None, "length_penalty": 1.0, "use_beam_search": False}
    (request,) = made(sampling_options=neutral, output_options={"logprobs": None})
    assert len(request.sampling.controls.words) == 0
