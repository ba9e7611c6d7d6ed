"""Prompts and conversations as requests of the frontend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict, cast

from blink.llm.sampling import SamplingParams
from nic_frontend.api.fields import is_token_list
from nic_frontend.errors import bad_request


class TextPrompt(TypedDict):
    prompt: str
    cache_salt: NotRequired[str]


class TokensPrompt(TypedDict):
    prompt_token_ids: list[int]
    prompt: NotRequired[str]
    cache_salt: NotRequired[str]


Prompt = str | list[int] | TextPrompt | TokensPrompt
Message = dict[str, Any]
KEYS = ("prompt", "prompt_token_ids", "cache_salt")


@dataclass(frozen=True)
class Question:
    """One prompt or conversation, and how it is to be answered. `wanted` are fields of requests beside it."""

    asked: Any
    params: SamplingParams
    wanted: dict[str, Any]
    chat: bool = False

    def body(self) -> dict[str, Any]:
        """Of the frontend's request. Raises ApiError 400 for what is no prompt."""
        params = self.params
        fields = {**params.fields(), **self.wanted}
        if self.chat:
            told = {} if params.logprobs is None else {"logprobs": True, "top_logprobs": params.logprobs}
            return {"messages": self.asked, **fields, **told}
        return {**_prompt_fields(self.asked), **fields, "logprobs": params.logprobs}

    @property
    def text(self) -> str | None:
        """The prompt's, where the caller gave it."""
        if isinstance(self.asked, dict):
            return cast(str | None, self.asked.get("prompt"))
        return self.asked if isinstance(self.asked, str) else None


def _prompt_fields(prompt: Any) -> dict[str, Any]:
    found = prompt if isinstance(prompt, dict) else {"prompt": prompt}
    if unknown := [str(name) for name in found if name not in KEYS]:
        raise bad_request(
            f"a prompt has no {unknown[0][:100]!r} here; it may have {', '.join(KEYS)}", "prompt"
        )
    tokens = found.get("prompt_token_ids")
    given = found.get("prompt") if tokens is None else tokens
    if not (isinstance(given, str) and tokens is None) and not is_token_list(given):
        raise bad_request(
            "a prompt is a string, a list of token ids, or a dictionary with 'prompt' or 'prompt_token_ids'; "
            f"this is {_kind(given)}",
            "prompt",
        )
    salt = found.get("cache_salt")
    return {"prompt": given} if salt is None else {"prompt": given, "cache_salt": salt}


def _kind(value: Any) -> str:
    """As Python's users call it."""
    if isinstance(value, list):
        others = {type(item).__name__ for item in value} - {"int"}
        return f"a list with {' and '.join(sorted(others))}"
    return f"of type {type(value).__name__}"


def listed_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Any]:
    """One prompt or several as a list. Raises TypeError for what is neither."""
    if isinstance(prompts, str | dict) or (is_token_list(prompts) and prompts):
        return [prompts]
    if not isinstance(prompts, Sequence) or isinstance(prompts, bytes):
        raise TypeError(f"prompts are a string, a list or a dictionary, not {type(prompts).__name__}")
    return list(prompts)


def listed_conversations(messages: list[Message] | Sequence[list[Message]]) -> list[Any]:
    """One conversation or several as a list. Raises TypeError for what is neither."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise TypeError(f"messages are a list of dictionaries, not {type(messages).__name__}")
    if messages and isinstance(messages[0], dict):
        return [messages]
    return [
        list(talk) if isinstance(talk, Sequence) and not isinstance(talk, str) else talk for talk in messages
    ]


def check_params(params: object) -> None:
    """Raises TypeError for what are no SamplingParams of ours."""
    if not isinstance(params, SamplingParams):
        kind = type(params)
        raise TypeError(f"sampling_params are blink.SamplingParams, not {kind.__module__}.{kind.__name__}")


def each(values: Any, n: int, name: str) -> list[Any]:
    """One value for each of `n` prompts, where one for all may be given. Raises ValueError."""
    if not isinstance(values, Sequence) or isinstance(values, str):
        return [values] * n
    if len(values) != n:
        raise ValueError(
            f"{name} has {len(values)} entries for {n} prompts: give one for each, or one for all"
        )
    return list(values)
