"""What a caller asks of answers, with the names and defaults of vLLM's classes."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from nic_frontend.api.parameters import SEED_MASK
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import Generation, Likeliest
from nic_frontend.errors import ApiError

T = TypeVar("T")

# Fields of a request (docs/api.md) that mean the same here.
SAME = (
    "n", "presence_penalty", "frequency_penalty", "repetition_penalty", "temperature", "top_p", "top_k",
    "min_p", "seed", "stop", "stop_token_ids", "ignore_eos", "max_tokens", "min_tokens", "prompt_logprobs",
    "skip_special_tokens", "include_stop_str_in_output", "allowed_token_ids", "bad_words",
    "truncate_prompt_tokens", "thinking_token_budget", "logits_processors", "logits_processor_args",
)  # fmt: skip
# vLLM's that are not served, with what to do instead.
UNSERVED = {
    "best_of": "use n, which returns all of them",
    "extra_args": "no plugin would read it: leave it out",
    "flat_logprobs": "log-probabilities are a dictionary for each token: leave it out",
    "guided_decoding": "use structured_outputs=StructuredOutputsParams(...)",
    "logprob_token_ids": "use logprobs, the likeliest tokens",
    "prompt_logprob_start": "use prompt_logprobs, which tells of the whole prompt",
    "prompt_logprob_token_ids": "use prompt_logprobs, the likeliest tokens",
    "repetition_detection": "use a penalty, or stop",
    "stream_interval": "outputs that wait are combined: leave it out",
    "trace_decode_token_ids": "use prompt_logprobs of a prompt that has these tokens",
    "skip_reading_prefix_cache": "use a cache_salt of the prompt's own",
    "use_beam_search": "beam search is not supported: use n",
}
CLOSE = 0.7  # of 1, between a name and one that may have been meant


class RequestOutputKind(Enum):
    """What each output of a stream has: all so far, what is new, or all at the end."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@dataclass
class StructuredOutputsParams:
    """What an answer has to be: exactly one of `json` (a schema), `regex`, `choice`, `grammar` (EBNF),
    `json_object` and `structural_tag` (docs/api.md, "Structured output").

    Raises ValueError where that is not so.
    """

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None

    def __post_init__(self) -> None:
        kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
        given = [name for name in kinds if getattr(self, name) is not None]
        if len(given) != 1:
            told = " and ".join(given) if given else "none"
            raise ValueError(f"StructuredOutputsParams takes one of {', '.join(kinds)}; given: {told}")


class _Fields(Generation, kw_only=True):
    """Those of SAME, and what endpoints have under different names."""

    logprobs: Likeliest | None = None
    thinking_token_budget: int | None = None


def explaining(params: type[T]) -> type[T]:
    """A dataclass whose constructor says what is right where Python would only name an unknown keyword. Those
    of UNSERVED are taken where they ask for nothing.
    """
    construct = params.__init__

    @functools.wraps(construct)
    def explained(self: T, *args: Any, **given: Any) -> None:
        known = [field.name for field in dataclasses.fields(params)]  # type: ignore[arg-type]
        for name in [name for name in given if name not in known]:
            if name in UNSERVED and not given.pop(name):
                continue
            close = difflib.get_close_matches(name, known, 1, CLOSE)
            hint = UNSERVED.get(name) or (f"did you mean {close[0]}?" if close else "leave it out")
            raise TypeError(f"{params.__name__} has no {name!r}: {hint}")
        construct(self, *args, **given)

    params.__init__ = explained  # type: ignore[method-assign, assignment]
    return params


@explaining
@dataclass
class SamplingParams:
    """How one prompt is answered. Raises ValueError for values that no server would take, and TypeError for
    what is not served here, with what to use instead.

    `max_tokens` None: as many tokens as fit, which is also the most that an answer has.
    `seed` None: another one each time; else choice i has seed + i.
    `logprobs`, `prompt_logprobs`: of each token, and of so many of the likeliest in its place, up to 20.
    `truncate_prompt_tokens`: only so many of a prompt's last tokens are used.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True  # changes nothing, as with every tokenizer.json
    include_stop_str_in_output: bool = False
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: StructuredOutputsParams | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    thinking_token_budget: int | None = None  # of chats
    truncate_prompt_tokens: int | None = None
    logits_processors: list[str] | None = (
        None  # names of those that the backend has (docs/logits-processors.md)
    )
    logits_processor_args: list[float] | dict[str, list[float]] | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            setattr(self, field.name, _plain(getattr(self, field.name)))
        self.seed = None if self.seed == -1 else self.seed  # as in vLLM
        self.logprobs = 1 if self.logprobs is True else self.logprobs
        self.prompt_logprobs = 1 if self.prompt_logprobs is True else self.prompt_logprobs
        _check_nothing_is_none(self)
        given = self.logits_processors
        if callable(given) or (isinstance(given, list) and any(map(callable, given))):
            raise TypeError(
                "'logits_processors' are names of functions that the backend has compiled: start it with "
                "LLM(model, logits_processor='module:function')"
            )
        if self.stop and not self.detokenize:
            raise ValueError("'stop' looks for text, and 'detokenize' is False: use stop_token_ids")
        _check_kind("structured_outputs", self.structured_outputs, StructuredOutputsParams | None)
        _check_kind("output_kind", self.output_kind, RequestOutputKind)
        _check_kind("detokenize", self.detokenize, bool)
        try:
            checked({**self.fields(), "logprobs": self.logprobs}, _Fields)
        except ApiError as error:
            raise ValueError(str(error)) from error
        self.n = int(self.n)  # 2.0 is an integer in JSON
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise ValueError(f"'min_tokens' is {self.min_tokens}, more than 'max_tokens', {self.max_tokens}")
        if self.seed is not None and self.seed > SEED_MASK:
            raise ValueError(f"'seed' must be at most {SEED_MASK}, it is {self.seed}")

    def fields(self) -> dict[str, Any]:
        """As a request has them, but for `logprobs`, which chats write in another way than completions."""
        fields = {name: value for name in SAME if (value := getattr(self, name)) is not None}
        if isinstance(self.logit_bias, dict):  # else it is refused as it is
            fields["logit_bias"] = {str(token): bias for token, bias in self.logit_bias.items()}
        elif self.logit_bias is not None:
            fields["logit_bias"] = self.logit_bias
        if self.structured_outputs is not None:
            given = dataclasses.asdict(self.structured_outputs)
            fields["structured_outputs"] = {name: value for name, value in given.items() if value is not None}
        return fields


def _plain(value: Any) -> Any:
    """Numbers and arrays of numpy and its like as Python's own, in lists and dicts, too."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(one) for name, one in value.items()}
    return value.tolist() if hasattr(value, "tolist") else value


def _check_nothing_is_none(params: SamplingParams) -> None:
    """Raises ValueError where None is given for what cannot be None."""
    for field in dataclasses.fields(params):
        if "None" not in str(field.type) and getattr(params, field.name) is None:
            raise ValueError(f"{field.name!r} must not be None; leave it out for {field.default!r}")


def _check_kind(name: str, value: object, kind: Any) -> None:
    """Raises TypeError where the value is of another kind."""
    if not isinstance(value, kind):
        right = {
            "detokenize": "True or False",
            "output_kind": "a RequestOutputKind",
            "structured_outputs": "StructuredOutputsParams(...)",
        }
        raise TypeError(f"{name!r} must be {right[name]}, it is of type {type(value).__name__}")
