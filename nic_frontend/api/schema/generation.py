"""What all requests for text have in common: sampling, stopping, counts and streaming."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nic_frontend.api.schema.structure import Choices, ResponseFormat, Schema, StructuredOutputs
from ringbuffer import abi

MAX_STOPS = 16
MAX_N = 128
MAX_TOP_K = 2**31 - 1

Stop = Annotated[str, Meta(min_length=1)]
Stops = Annotated[list[Stop], Meta(max_length=MAX_STOPS)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Tokens = Annotated[int, Meta(ge=1, le=abi.MAX_COUNT)]
Likeliest = Annotated[int, Meta(ge=0, le=abi.MAX_LOGPROBS, description="How many of the likeliest tokens.")]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Biases = Annotated[
    dict[str, Bias],
    Meta(max_length=abi.MAX_BIASES, description="By token id. What is added to a token's logit."),
]
TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=2**20)]
BadWords = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=abi.MAX_BAN_WORDS // 2)]
Seed = Annotated[int, Meta(ge=-(2**63))]
Priority = Annotated[
    int, Meta(ge=-128, le=127, description="Lower is more urgent. Needs --scheduling-policy priority.")
]
Salt = Annotated[str, Meta(min_length=1)]
StopIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=abi.MAX_STOP_IDS)]


class ModelSampling(Struct, kw_only=True):
    """The sampling for which a model has defaults of its own (api/sampling_defaults.py)."""

    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    min_p: Probability | None = None
    top_k: Annotated[int, Meta(ge=-1, le=MAX_TOP_K, description="0 and -1: all tokens")] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100)] | None = None


class Structured(ModelSampling, kw_only=True):
    """The fields by which a request says so; the last ones have the names that vLLM gave up."""

    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: Schema | str | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Generation(Structured, kw_only=True):
    """The common fields. None is a field that was left out."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_N)] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_N, description="Must equal n.")] | None = None
    max_tokens: Tokens | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=abi.MAX_COUNT)] | None = None
    seed: Seed | None = None
    stop: Stop | Stops | None = None
    stop_token_ids: StopIds | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    return_token_ids: bool | None = None
    prompt_logprobs: Likeliest | None = None
    logit_bias: Biases | None = None
    allowed_token_ids: TokenIds | None = None
    bad_words: BadWords | None = None
    truncate_prompt_tokens: (
        Annotated[int, Meta(ge=-1, le=abi.MAX_COUNT, description="Of the prompt's end; -1: as many as fit.")]
        | None
    ) = None
    truncation_side: (
        Annotated[Literal["left", "right"], Meta(description="Where a prompt is cut off; left by default.")]
        | None
    ) = None
    return_tokens_as_token_ids: bool | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    add_special_tokens: bool | None = None


PROMPT = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1},
        {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            "minItems": 1,
        },
    ]
}


class CompletionRequest(Generation, kw_only=True):
    prompt: Annotated[Any, Meta(extra_json_schema=PROMPT)]
    echo: bool | None = None
    max_tokens: Annotated[int, Meta(ge=0, le=abi.MAX_COUNT, description="0 needs echo.")] | None = None
    logprobs: Likeliest | bool | None = None
