"""SamplingParams: what is served has vLLM's names and defaults, and what is not is refused by its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from blink import SamplingParams, StructuredOutputsParams
from blink.llm.sampling import UNSERVED


def test_defaults_are_those_of_vllm() -> None:
    """Of 0.26 and later (vllm/sampling_params.py)."""
    params = SamplingParams()
    assert (params.n, params.temperature, params.top_p, params.top_k, params.min_p) == (1, 1.0, 1.0, 0, 0.0)
    assert (params.max_tokens, params.min_tokens, params.seed, params.stop) == (16, 0, None, None)
    assert (params.logprobs, params.prompt_logprobs, params.ignore_eos) == (None, None, False)
    assert (params.detokenize, params.skip_special_tokens, params.include_stop_str_in_output) == (
        True,
        True,
        False,
    )
    assert SamplingParams(seed=-1).seed is None


@pytest.mark.parametrize("name", UNSERVED)
def test_what_is_not_served_is_refused_by_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"SamplingParams has no '{name}': .+"):
        SamplingParams(**{name: True})
    assert SamplingParams(**{name: None}) == SamplingParams(**{name: []})


def test_a_misspelt_name_is_explained() -> None:
    with pytest.raises(TypeError, match="'max_token': did you mean max_tokens"):
        SamplingParams(**{"max_token": None})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temperature": 3.0}, "'temperature' must be at most 2"),
        ({"top_p": 0.0}, "'top_p' must be above 0"),
        ({"max_tokens": 0}, "'max_tokens' must be at least 1"),
        ({"logprobs": -1}, "'logprobs' must be at least 0"),
        ({"logprobs": 21}, "'logprobs' must be at most 20"),
        ({"n": 0}, "'n' must be at least 1"),
        ({"max_tokens": -1}, "'max_tokens' must be at least 1, it is -1"),
        ({"min_tokens": "2"}, "'min_tokens' must be an integer, it is a string"),
        ({"seed": 2**64}, "'seed' must be at most 18446744073709551615, it is 18446744073709551616"),
        ({"temperature": 1j}, "'temperature' must be a number, it is of type complex"),
        ({"min_tokens": 20}, "'min_tokens' is 20, more than 'max_tokens', 16"),
        ({"stop": [""]}, "'stop"),
        ({"stop": "x", "detokenize": False}, "use stop_token_ids"),
        ({"logit_bias": {5: 200.0}}, "'logit_bias' has a value that it may not have"),
        ({"temperature": "hot"}, "'temperature' must be a number"),
        ({"min_tokens": None}, "'min_tokens' must not be None; leave it out for 0"),
        ({"n": None}, "'n' must not be None"),
        ({"logits_processors": 5}, "'logits_processors' must be an array"),
        ({"logit_bias": [1]}, "'logit_bias' must be an object"),
    ],
)
def test_values_that_nobody_takes_are_refused_at_once(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"structured_outputs": {"regex": "a"}},
            r"'structured_outputs' must be StructuredOutputsParams\(...\), it is of type dict",
        ),
        ({"output_kind": "DELTA"}, "'output_kind' must be a RequestOutputKind, it is of type str"),
        ({"detokenize": "no"}, "'detokenize' must be True or False, it is of type str"),
    ],
)
def test_what_has_a_class_of_its_own_is_of_that_class(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        SamplingParams(**fields)


def test_numbers_of_numpy_are_numbers() -> None:
    params = SamplingParams(
        **{"temperature": np.float32(0.5), "max_tokens": np.int64(3), "seed": np.uint8(7)}
    )
    assert params == SamplingParams(temperature=0.5, max_tokens=3, seed=7)
    assert [type(one) for one in (params.temperature, params.max_tokens)] == [float, int]
    given: dict[str, Any] = {
        "top_p": np.float64(0.5),
        "ignore_eos": np.True_,
        "stop_token_ids": np.array([3]),
        "allowed_token_ids": (np.int64(4), 5),
        "logit_bias": {np.int64(3): np.float32(1)},
        "n": 2.0,
    }
    right: dict[str, Any] = {
        "top_p": 0.5,
        "ignore_eos": True,
        "stop_token_ids": [3],
        "allowed_token_ids": [4, 5],
        "logit_bias": {3: 1.0},
        "n": 2,
    }
    assert repr(SamplingParams(**given)) == repr(SamplingParams(**right))


def test_functions_of_python_are_refused_with_what_takes_their_place() -> None:
    with pytest.raises(TypeError, match="names of functions that the backend has compiled"):
        SamplingParams(logits_processors=[lambda tokens, logits: logits])  # type: ignore[list-item]
    assert SamplingParams(logits_processors=["ban"]).fields()["logits_processors"] == ["ban"]


@pytest.mark.parametrize("given", [{}, {"regex": "a", "choice": ["b"]}])
def test_a_structure_is_one_thing(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="takes one of json, regex, choice"):
        StructuredOutputsParams(**given)
