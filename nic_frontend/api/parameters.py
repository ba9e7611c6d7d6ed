"""What completions and chat completions have in common: sampling, stopping, counts and streaming (API
reference; vLLM's extras).
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from typing import NamedTuple, Self

from nic_frontend.api.fields import Fields, refuse_unsupported
from nic_frontend.errors import bad_request, context_length_exceeded
from nic_frontend.request import Sampling
from ringbuffer import abi

MAX_STOPS = 16
MAX_STOP_CHARACTERS = 2048  # of all stop strings together
MAX_N = 128
SEED_MASK = 2**64 - 1


@dataclass(frozen=True)
class Limits:
    """What this server can do, from the ring's header and the lease. Tokens, but for `max_choices`."""

    max_context: int
    prompt_heap: int  # of the lease
    output_heap: int
    vocab_size: int
    max_choices: int  # prompts times n of one request

    def check_choices(self, prompts: int, n: int, param: str) -> None:
        """Raises ApiError 400 when this server could never hold that many choices at once."""
        if prompts * n > self.max_choices:
            raise bad_request(
                f"'{param}' and 'n' ask for {prompts * n} choices; one request may have at most "
                f"{self.max_choices}",
                "n" if n > 1 else param,
                "invalid_value",
            )

    def max_answer(self, prompt_tokens: int, param: str) -> int:
        """Tokens left for the answer. Raises ApiError 400 when the prompt is empty or leaves no room."""
        if prompt_tokens == 0:
            raise bad_request(f"'{param}' has no tokens; at least one is needed", param, "invalid_value")
        longest = min(self.max_context - 1, self.prompt_heap)
        if prompt_tokens > longest:
            raise context_length_exceeded(
                f"this model's maximum context length is {self.max_context} tokens and '{param}' has "
                f"{prompt_tokens}; at most {longest} leave room for an answer",
                param,
            )
        return min(self.max_context - prompt_tokens, self.output_heap)

    def max_open_answer(self, room: int, choices: int) -> int:
        """Tokens of an answer of at most `room` where the client gives no limit.

        All choices of one request fit the heap together.
        """
        granule = abi.OUTPUT_GRANULE
        return min(room, max(self.output_heap // choices // granule, 1) * granule)


class ModelSampling(NamedTuple):
    """The sampling for which a model has defaults of its own (sampling_defaults.py)."""

    temperature: float
    top_p: float
    min_p: float
    top_k: int
    repetition_penalty: float

    @classmethod
    def parse(cls, fields: Fields) -> Self:
        return cls(
            temperature=fields.number("temperature", 1.0, 0.0, 2.0),
            top_p=fields.number("top_p", 1.0, 0.0, 1.0, above_low=True),
            min_p=fields.number("min_p", 0.0, 0.0, 1.0),
            top_k=max(fields.count("top_k", 0, -1, 2**31 - 1), 0),
            repetition_penalty=fields.number("repetition_penalty", 1.0, 0.0, 100.0, above_low=True),
        )


@dataclass(frozen=True)
class Parameters:
    """A request's parameters, checked. `max_tokens` is None for as many as fit."""

    max_tokens: int | None
    max_tokens_field: str
    min_tokens: int
    seed: int
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool  # with every event
    return_token_ids: bool
    stops: tuple[str, ...]
    include_stop: bool
    skip_special_tokens: bool
    model_sampling: ModelSampling
    presence_penalty: float
    frequency_penalty: float
    ignore_eos: bool
    stop_ids: tuple[int, ...]
    salt: tuple[int, int]

    def answer_tokens(self, prompt_tokens: int, limits: Limits, param: str) -> int:
        """The most that an answer to a prompt of this length may have.

        Raises ApiError 400 when it does not fit the context.
        """
        room = limits.max_answer(prompt_tokens, param)
        max_tokens = limits.max_open_answer(room, self.n) if self.max_tokens is None else self.max_tokens
        if max_tokens > room:
            raise context_length_exceeded(
                f"this model's maximum context length is {limits.max_context} tokens; '{param}' has "
                f"{prompt_tokens} and '{self.max_tokens_field}' asks for {max_tokens}, at most {room} fit",
                self.max_tokens_field,
            )
        if self.min_tokens > max_tokens:
            raise bad_request(
                f"'min_tokens' is {self.min_tokens}, more than the {max_tokens} tokens of the answer",
                "min_tokens",
                "invalid_value",
            )
        return max_tokens

    def sampling(self, prompt_tokens: int, choice: int, limits: Limits, param: str) -> Sampling:
        """The sampling of one choice. Raises what `answer_tokens` does."""
        return Sampling(
            max_tokens=self.answer_tokens(prompt_tokens, limits, param),
            seed=(self.seed + choice) & SEED_MASK,
            min_tokens=self.min_tokens,
            **self.model_sampling._asdict(),
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            ignore_eos=self.ignore_eos,
            stop_ids=self.stop_ids,
            salt=self.salt,
        )


def parse(
    fields: Fields, limits: Limits, *, max_tokens_fields: tuple[str, ...], default: int | None
) -> Parameters:
    """Reads the common fields.

    The first of `max_tokens_fields` that is present counts, `default` where none is.
    """
    refuse_unsupported(fields.body)
    n = fields.count("n", 1, 1, MAX_N)
    best_of = fields.integer("best_of", None, 1, MAX_N)
    if best_of not in (None, n):
        raise bad_request("'best_of' is not supported; leave it out", "best_of", "unsupported_parameter")
    chosen = next(
        (name for name in max_tokens_fields if fields.body.get(name) is not None), max_tokens_fields[0]
    )
    stream = fields.flag("stream", False)
    include_usage, continuous_usage = _stream_options(fields, stream)
    seed = fields.integer("seed", None, -(2**63), 2**64 - 1)
    return Parameters(
        max_tokens=fields.integer(chosen, default, 1, abi.MAX_COUNT),
        max_tokens_field=chosen,
        min_tokens=fields.count("min_tokens", 0, 0, abi.MAX_COUNT),
        seed=random.getrandbits(63) if seed is None else seed,
        n=n,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        return_token_ids=fields.flag("return_token_ids", False),
        stops=fields.strings("stop", MAX_STOPS, MAX_STOP_CHARACTERS),
        include_stop=fields.flag("include_stop_str_in_output", False),
        skip_special_tokens=fields.flag("skip_special_tokens", True),
        model_sampling=ModelSampling.parse(fields),
        presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
        ignore_eos=fields.flag("ignore_eos", False),
        stop_ids=fields.token_ids("stop_token_ids", abi.MAX_STOP_IDS, limits.vocab_size),
        salt=_salt(fields),
    )


def _salt(fields: Fields) -> tuple[int, int]:
    """The words for `cache_salt`, with which only requests of the same salt share cached keys and values: the
    first 128 bits of its SHA-256, of which one is always set, because (0, 0) are the words of no salt.
    """
    salt = fields.string("cache_salt")
    if salt is None:
        return 0, 0
    if not salt:
        raise bad_request(
            "'cache_salt' is empty; it must be a non-empty string, or left out", "cache_salt", "invalid_value"
        )
    digest = hashlib.sha256(salt.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") | 1, int.from_bytes(digest[8:16], "little")


def _stream_options(fields: Fields, stream: bool) -> tuple[bool, bool]:
    """Whether the usage comes at the end, and whether with every event, which needs the former as in vLLM."""
    options = fields.body.get("stream_options")
    if options is None:
        return False, False
    if not isinstance(options, dict):
        raise bad_request("'stream_options' must be an object", "stream_options", "invalid_type")
    if not stream:
        raise bad_request("'stream_options' needs 'stream': true", "stream_options", "invalid_value")
    include_usage = Fields(options).flag("include_usage", False)
    continuous = Fields(options).flag("continuous_usage_stats", False)
    return include_usage, include_usage and continuous
