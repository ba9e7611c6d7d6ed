"""What all requests for text have in common: sampling, stopping, counts and streaming."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nic_frontend.api.schema.rows import Row
from nic_frontend.api.schema.structure import Choices, ResponseFormat, Schema, StructuredOutputs
from ringbuffer import abi

MAX_STOPS = 16
MAX_N = 128
MAX_TOP_K = 2**31 - 1

Stop = Annotated[str, Meta(min_length=1)]
Stops = Annotated[list[Stop], Meta(max_length=MAX_STOPS)]
Tokens = Annotated[int, Meta(ge=1, le=abi.MAX_COUNT)]
Likeliest = Annotated[int, Meta(ge=0, le=abi.MAX_LOGPROBS, description="How many of the likeliest tokens.")]
Bias = Annotated[float, Meta(ge=-100, le=100)]
Biases = Annotated[
    dict[str, Bias],
    Meta(max_length=abi.MAX_BIASES, description="By token id. What is added to a token's logit."),
]
TokenIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=2**20)]
BadWords = Annotated[list[Annotated[str, Meta(min_length=1)]], Meta(max_length=abi.MAX_BAN_WORDS // 2)]
ProcessorNames = Annotated[
    list[str],
    Meta(
        max_length=abi.MAX_ASKED_PROCESSORS,
        description="Names of the server's --logits-processor; applied in this order.",
    ),
]
LARGEST_ARG = 3e38  # of an fp32
ProcessorArg = Annotated[float, Meta(ge=-LARGEST_ARG, le=LARGEST_ARG)]
ProcessorNumbers = Annotated[list[ProcessorArg], Meta(max_length=abi.PROCESSOR_ARGS)]
ProcessorArgs = Annotated[
    ProcessorNumbers | dict[str, ProcessorNumbers],
    Meta(description="Numbers for the one that is named, or for each by its name. Those left out are 0."),
]
Seed = Annotated[int, Meta(ge=-(2**63))]
Priority = Annotated[
    int, Meta(ge=-128, le=127, description="Lower is more urgent. Needs --scheduling-policy priority.")
]
Salt = Annotated[str, Meta(min_length=1)]
StopIds = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=abi.MAX_STOP_IDS)]


def recommended(neutral: float, **more: Any) -> Row:
    return Row((neutral,), in_descriptor=True, of_model=True, **more)


def _top_k(top_k: int) -> int:
    return max(top_k, 0)


class ModelSampling(Struct, kw_only=True):
    """The sampling for which a model has defaults of its own (api/sampling_defaults.py)."""

    temperature: Annotated[float, Meta(ge=0, le=2), recommended(1.0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1), recommended(1.0)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1), recommended(0.0)] | None = None
    top_k: (
        Annotated[
            int,
            Meta(ge=-1, le=MAX_TOP_K, description="0 and -1: all tokens."),
            recommended(0, written=_top_k),
        ]
        | None
    ) = None
    repetition_penalty: Annotated[float, Meta(gt=0, le=100), recommended(1.0)] | None = None


class Structured(ModelSampling, kw_only=True):
    """The fields by which a request says so; the last ones have the names that vLLM gave up."""

    response_format: Annotated[ResponseFormat | None, Row(({"type": "text"},))] = None
    structured_outputs: Annotated[StructuredOutputs | None, Row()] = None
    guided_json: Annotated[Schema | str | None, Row()] = None
    guided_regex: Annotated[str | None, Row()] = None
    guided_choice: Annotated[Choices | None, Row()] = None
    guided_grammar: Annotated[str | None, Row()] = None


class StreamOptions(Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class Generation(Structured, kw_only=True):
    """The common fields. None is a field that was left out."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_N), Row((1,))] | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_N, description="Must equal n."), Row((1,))] | None = None
    max_tokens: Tokens | None = None
    min_tokens: Annotated[int, Meta(ge=0, le=abi.MAX_COUNT), Row((0,))] | None = None
    seed: Seed | None = None
    stop: Annotated[Stop | Stops | None, Row(([],))] = None
    stop_token_ids: Annotated[StopIds | None, Row(([],))] = None
    include_stop_str_in_output: Annotated[bool | None, Row((False,))] = None
    ignore_eos: Annotated[bool | None, Row((False,))] = None
    skip_special_tokens: Annotated[bool | None, Row((True,))] = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2), Row((0.0,), in_descriptor=True)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2), Row((0.0,), in_descriptor=True)] | None = None
    return_token_ids: Annotated[bool | None, Row((False,))] = None
    prompt_logprobs: Annotated[Likeliest | None, Row()] = None
    logit_bias: Annotated[Biases | None, Row(({},))] = None
    allowed_token_ids: Annotated[TokenIds | None, Row(([],))] = None
    bad_words: Annotated[BadWords | None, Row(([],))] = None
    logits_processors: Annotated[ProcessorNames | None, Row(([],))] = None
    logits_processor_args: Annotated[ProcessorArgs | None, Row(([], {}))] = None
    truncate_prompt_tokens: (
        Annotated[
            int, Meta(ge=-1, le=abi.MAX_COUNT, description="Of the prompt's end; -1: as many as fit."), Row()
        ]
        | None
    ) = None
    truncation_side: (
        Annotated[
            Literal["left", "right"],
            Meta(description="Where a prompt is cut off; left by default."),
            Row(("left", "right")),
        ]
        | None
    ) = None
    return_tokens_as_token_ids: Annotated[bool | None, Row((False,))] = None
    cache_salt: Salt | None = None
    priority: Annotated[Priority | None, Row((0,), in_descriptor=True)] = None
    add_special_tokens: Annotated[bool | None, Row((False,))] = None


def in_common(request: Struct, **others: Any) -> Generation:
    """What a request of another model says of the common fields, which mean the same there; the `others` have
    other names there.
    """
    names = set(Generation.__struct_fields__) & set(request.__struct_fields__)
    return Generation(**{name: getattr(request, name) for name in names}, **others)


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
    echo: Annotated[bool | None, Row((False,))] = None
    max_tokens: Annotated[int, Meta(ge=0, le=abi.MAX_COUNT, description="0 needs echo.")] | None = None
    logprobs: Annotated[Likeliest | bool | None, Row((False,))] = None
