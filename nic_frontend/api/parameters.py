"""What requests for text have in common, as the ring takes it: sampling, stopping, counts and streaming."""

from __future__ import annotations

import dataclasses
import hashlib
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.fields import check_tokens
from nic_frontend.api.limits import Limits
from nic_frontend.api.schema.generation import Generation
from nic_frontend.api.schema.rows import descriptor_values
from nic_frontend.errors import bad_request, context_length_exceeded
from nic_frontend.ring.request import NO_SALT, Sampling, words_of
from ringbuffer import abi
from ringbuffer.extents import NO_CONTROLS, Controls

MAX_STOP_CHARACTERS = 2048  # of all stop strings together
SEED_MASK = 2**64 - 1


@dataclass(frozen=True)
class Parameters:
    """A request's parameters, checked. `max_tokens` is None where the client names none: then an answer may
    have `default_tokens`, or all that fit if those are fewer or None.
    """

    sampling: Sampling  # of the first choice, but for its `max_tokens`, which follow from its prompt
    max_tokens: int | None
    default_tokens: int | None
    max_tokens_field: str
    n: int
    stream: bool
    include_usage: bool
    continuous_usage: bool  # with every event
    return_token_ids: bool
    stops: tuple[str, ...]
    include_stop: bool
    skip_special_tokens: bool
    eos_ids: tuple[int, ...]  # the model's
    shows_prompt_logprobs: bool  # else they are for an echo
    longest_prompt: int | None  # tokens; more are cut off. -1: as many as leave room
    keeps_beginning: bool  # of a prompt that is cut, instead of its end
    cuts_answer: bool  # `max_tokens` that the context has no room for are as none; else they are an error

    @property
    def cuts(self) -> bool:
        return self.longest_prompt is not None

    def truncated(self, prompt: NDArray[np.uint32], limits: Limits) -> NDArray[np.uint32]:
        """The end of a prompt, or its beginning, as far as `truncate_prompt_tokens` wants it."""
        if self.longest_prompt is None:
            return prompt
        longest = self.longest_prompt
        if longest < 0:
            answer = self.default_tokens if self.max_tokens is None else self.max_tokens
            if self.cuts_answer and answer is not None and answer >= limits.max_context:
                answer = 1  # it asks for what there is, and not for the prompt's place
            longest = max(min(limits.max_context - (answer or 1), limits.prompt_heap), 1)
        return prompt[:longest] if self.keeps_beginning else prompt[-longest:]

    def answer_tokens(self, prompt_tokens: int, limits: Limits, param: str) -> int:
        """The most that an answer to a prompt of this length may have.

        Raises ApiError 400 when it does not fit the context.
        """
        room = limits.max_answer(prompt_tokens, param)
        if self.max_tokens is None or (self.cuts_answer and self.max_tokens > room):
            max_tokens = limits.max_open_answer(room, self.n)
            max_tokens = min(max_tokens, self._told_answer(prompt_tokens, self.n, limits))
            max_tokens = min(max_tokens, self.default_tokens or max_tokens)
        else:
            max_tokens = max(self.max_tokens, 1)  # 0: one is sampled, and not shown
        if max_tokens > room:
            raise context_length_exceeded(
                f"this model's maximum context length is {limits.max_context} tokens; '{param}' has "
                f"{prompt_tokens} and '{self.max_tokens_field}' asks for {max_tokens}, at most {room} fit",
                self.max_tokens_field,
            )
        if self.max_tokens is not None and max_tokens >= self.max_tokens:
            self._told_answer(prompt_tokens, 1, limits, max_tokens)
        if self.sampling.min_tokens > max_tokens:
            raise bad_request(
                f"'min_tokens' is {self.sampling.min_tokens}, more than the {max_tokens} tokens that the "
                f"answer may have: '{self.max_tokens_field}' {self._why_so_many(max_tokens, room)}",
                "min_tokens",
                "invalid_value",
            )
        return max_tokens

    def _why_so_many(self, max_tokens: int, room: int) -> str:
        """Why an answer may have as many tokens as it may, behind the name of the field that could say."""
        if self.max_tokens is not None:
            return f"is {self.max_tokens}{', and no more fit' if max_tokens < self.max_tokens else ''}"
        if max_tokens == room or self.default_tokens is None:
            return "was left out, and no more fit"
        return f"is {self.default_tokens} where it is left out"

    def _told_answer(self, prompt_tokens: int, choices: int, limits: Limits, wanted: int = 1) -> int:
        """Tokens of an answer for whose log-probabilities the heap has room, beside those of its prompt.

        Raises ApiError 400 where they are fewer than wanted.
        """
        of_prompt = prompt_tokens * words_of(self.sampling.prompt_logprobs)
        left = limits.output_heap // choices - of_prompt
        granule = abi.OUTPUT_GRANULE
        most = max(left, 0) // (1 + words_of(self.sampling.logprobs)) // granule * granule
        if wanted > most:
            field = "prompt_logprobs" if self.shows_prompt_logprobs else "logprobs"
            raise bad_request(
                f"'{field}' for a prompt of {prompt_tokens} tokens and an answer of {wanted} needs more than "
                f"the {limits.output_heap} words that this server holds for answers: a token takes one, and "
                "one for each log-probability; ask for fewer",
                field,
                "invalid_value",
            )
        return most

    def of_choice(self, prompt_tokens: int, choice: int, limits: Limits, param: str) -> Sampling:
        """The sampling of one choice. Raises what `answer_tokens` does."""
        return dataclasses.replace(
            self.sampling,
            max_tokens=self.answer_tokens(prompt_tokens, limits, param),
            seed=(self.sampling.seed + choice) & SEED_MASK,
        )


def parse(
    request: Generation,
    limits: Limits,
    *,
    max_tokens: int | None,
    max_tokens_field: str,
    default_tokens: int | None = None,
    cuts_answer: bool = False,
    stop_field: str = "stop",
    logprobs: int | None = None,
    prompt_logprobs: int | None = None,
    controls: Controls = NO_CONTROLS,
) -> Parameters:
    """The common fields. Those that are given beside the request are the endpoint's.

    Raises ApiError 400 for what depends on this server, or on two fields.
    """
    n = _or(request.n, 1)
    if request.best_of not in (None, n):
        raise bad_request("'best_of' is not supported; leave it out", "best_of", "unsupported_parameter")
    stream = bool(request.stream)
    include_usage, continuous_usage = _stream_options(request, stream)
    if request.seed is not None and request.seed > SEED_MASK:
        raise bad_request(
            f"'seed' must be at most {SEED_MASK}, it is {request.seed}", "seed", "invalid_value"
        )
    if request.truncate_prompt_tokens == 0:
        raise bad_request(
            "'truncate_prompt_tokens' must be at least 1, or -1 for as many as fit, it is 0",
            "truncate_prompt_tokens",
            "invalid_value",
        )
    stop_ids = request.stop_token_ids or []
    check_tokens("stop_token_ids", stop_ids, limits.vocab_size)
    limits.check_priority(request.priority or 0)
    sampling = Sampling(
        max_tokens=abi.MAX_COUNT,
        seed=random.getrandbits(63) if request.seed is None else request.seed,
        values=descriptor_values(request),
        min_tokens=_or(request.min_tokens, 0),
        ignore_eos=bool(request.ignore_eos),
        stop_ids=tuple(stop_ids),
        salt=_salt(request.cache_salt),
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        controls=controls,
    )
    return Parameters(
        sampling=sampling,
        max_tokens=max_tokens,
        max_tokens_field=max_tokens_field,
        default_tokens=default_tokens,
        cuts_answer=cuts_answer,
        n=n,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=continuous_usage,
        return_token_ids=bool(request.return_token_ids),
        stops=_stops(request.stop, stop_field),
        include_stop=bool(request.include_stop_str_in_output),
        skip_special_tokens=_or(request.skip_special_tokens, True),
        eos_ids=limits.eos_ids,
        shows_prompt_logprobs=request.prompt_logprobs is not None,
        longest_prompt=request.truncate_prompt_tokens,
        keeps_beginning=request.truncation_side == "right",
    )


def check_streams_no_prompt_logprobs(request: Generation) -> None:
    """Raises ApiError 400 where a stream is to tell of its prompt, for which its events have no place."""
    if request.stream and request.prompt_logprobs is not None:
        raise bad_request(
            "'prompt_logprobs' cannot be streamed; leave out 'stream', or use 'echo' of completions",
            "prompt_logprobs",
            "invalid_value",
        )


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value


def _stops(stop: str | list[str] | None, field: str) -> tuple[str, ...]:
    stops = (stop,) if isinstance(stop, str) else tuple(stop or ())
    if (characters := sum(map(len, stops))) > MAX_STOP_CHARACTERS:
        raise bad_request(
            f"'{field}' takes up to {MAX_STOP_CHARACTERS} characters in all, it has {characters}",
            field,
            "invalid_value",
        )
    return stops


def _salt(salt: str | None) -> tuple[int, int]:
    """The words for `cache_salt`, with which only requests of the same salt share cached keys and values: the
    first 128 bits of its SHA-256, of which one is always set, because NO_SALT has none.
    """
    if salt is None:
        return NO_SALT
    digest = hashlib.sha256(salt.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "little") | 1, int.from_bytes(digest[8:16], "little")


def _stream_options(request: Generation, stream: bool) -> tuple[bool, bool]:
    """Whether the usage comes at the end, and whether with every event, which needs the former as in vLLM."""
    options = request.stream_options
    if options is None:
        return False, False
    include_usage, continuous = bool(options.include_usage), bool(options.continuous_usage_stats)
    if not stream and (include_usage or continuous):
        raise bad_request("'stream_options' needs 'stream': true", "stream_options", "invalid_value")
    return include_usage, include_usage and continuous
