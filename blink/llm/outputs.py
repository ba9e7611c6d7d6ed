"""What a caller gets of an answer, with the names of vLLM's classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Logprob(NamedTuple):
    """Of a token in its place. `rank` is 1 for the likeliest; None: not known."""

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


TokenLogprobs = dict[int, Logprob]  # by token id: of the token itself, and of the likeliest


@dataclass
class CompletionOutput:
    """One of a prompt's answers. `token_ids` has the token that ended it, which `text` does not show.

    `logprobs` has an entry for each of `token_ids`. `finish_reason` is "stop", "length" or "abort", and None
    while there is more to come; `stop_reason` is the stop string or the token id that was found.
    """

    index: int
    text: str
    token_ids: list[int]
    cumulative_logprob: float | None = None
    logprobs: list[TokenLogprobs] | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOutput:
    """A prompt and its answers. `prompt` is None where token ids were given without their text.

    `prompt_logprobs` has an entry for each of `prompt_token_ids`, of which the first is None.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[TokenLogprobs | None] | None
    outputs: list[CompletionOutput]
    finished: bool
    num_cached_tokens: int | None = None
