"""A job: one API call, parsed. Its prompts times n are its choices."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.fields import (
    UNSUPPORTED_IN_CHAT,
    Fields,
    article,
    check_tokens,
    is_token_list,
    refuse_unsupported,
    wrong_type,
)
from nic_frontend.api.parameters import Limits, Parameters, parse
from nic_frontend.errors import bad_request
from nic_frontend.tokenizer import Tokenizer

ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True)
class Job:
    """`prompts` are uint32 arrays; choice i answers prompt i // n.

    `echoes` are what each choice's text begins with.
    """

    chat: bool
    parameters: Parameters
    prompts: list[NDArray[np.uint32]]
    echoes: list[str]
    param: str  # the field that the prompt came from, for messages


class Parser(Protocol):
    async def __call__(self, body: dict[str, Any], tokenizer: Tokenizer, limits: Limits) -> Job: ...


async def parse_completion(body: dict[str, Any], tokenizer: Tokenizer, limits: Limits) -> Job:
    """/v1/completions:

    `prompt` is a string, an array of strings, an array of tokens, or an array of those.
    """
    fields = Fields(body)
    parameters = parse(fields, limits, max_tokens_fields=("max_tokens",), default=16)
    special = fields.flag("add_special_tokens", True)
    echo = fields.flag("echo", False)
    given = _prompts(body.get("prompt"), parameters.n, limits)
    texts = [prompt for prompt in given if isinstance(prompt, str)]
    encoded = iter(await tokenizer.encode(texts, special=special, param="prompt"))
    prompts = [next(encoded) if isinstance(prompt, str) else await _array(prompt, limits) for prompt in given]
    for prompt in prompts:
        parameters.answer_tokens(len(prompt), limits, "prompt")
    echoes = await _echoes(given, tokenizer) if echo else [""] * len(given)
    return Job(False, parameters, prompts, echoes, "prompt")


async def _array(tokens: list[int], limits: Limits) -> NDArray[np.uint32]:
    check_tokens("prompt", tokens, limits.vocab_size)
    await asyncio.sleep(0)  # other streams' turn, between two prompts of a megabyte each
    return np.array(tokens, dtype=np.uint32)


async def _echoes(given: list[str | list[int]], tokenizer: Tokenizer) -> list[str]:
    decoded = iter(await tokenizer.decode([prompt for prompt in given if not isinstance(prompt, str)]))
    return [prompt if isinstance(prompt, str) else next(decoded) for prompt in given]


def _prompts(prompt: Any, n: int, limits: Limits) -> list[str | list[int]]:
    """The prompts. Their number and lengths are checked before anything is done with each (F10)."""
    if prompt is None:
        raise bad_request("'prompt' is missing", "prompt", "missing_required_parameter")
    several = isinstance(prompt, list) and type(next(iter(prompt), None)) is not int
    listed = prompt if several else [prompt]
    limits.check_choices(len(listed), n, "prompt")
    if not listed or "" in listed:
        raise bad_request("'prompt' is empty", "prompt", "invalid_value")
    for tokens in listed:
        if isinstance(tokens, list):
            limits.max_answer(len(tokens), "prompt")
    for i, item in enumerate(listed):
        if not isinstance(item, str) and not is_token_list(item):
            raise _wrong_prompt(item, f"prompt[{i}]" if several else "prompt")
    return listed


def _wrong_prompt(item: Any, where: str) -> Exception:
    """Names what is no prompt, or the first token in it that is none."""
    expected = "a string or an array of token ids"
    if isinstance(item, list):
        at = next(i for i, token in enumerate(item) if type(token) is not int)
        where, item, expected = f"{where}[{at}]", item[at], "a token id"
    return bad_request(f"'{where}' must be {expected}, it is {article(item)}", "prompt", "invalid_type")


async def parse_chat(body: dict[str, Any], tokenizer: Tokenizer, limits: Limits) -> Job:
    """/v1/chat/completions."""
    fields = Fields(body)
    refuse_unsupported(body, UNSUPPORTED_IN_CHAT)
    parameters = parse(
        fields, limits, max_tokens_fields=("max_completion_tokens", "max_tokens"), default=None
    )
    if tokenizer.template is None:
        raise bad_request(
            "this model has no chat template; use /v1/completions", "messages", "unsupported_parameter"
        )
    limits.check_choices(1, parameters.n, "messages")
    options = body.get("chat_template_kwargs") or {}
    if not isinstance(options, dict):
        raise wrong_type("chat_template_kwargs", "an object", options)
    text = tokenizer.template.render(
        _messages(body.get("messages"), limits),
        fields.flag("add_generation_prompt", True),
        _reserved(options),
    )
    special = fields.flag("add_special_tokens", False)
    prompts = await tokenizer.encode([text], special=special, param="messages")
    return Job(True, parameters, prompts, [""], "messages")


def _reserved(options: dict[str, Any]) -> dict[str, Any]:
    for name in ("messages", "add_generation_prompt"):
        if name in options:
            raise bad_request(
                f"'chat_template_kwargs' must not contain '{name}'", "chat_template_kwargs", "invalid_value"
            )
    return options


def _messages(messages: Any, limits: Limits) -> list[dict[str, Any]]:
    if messages is None:
        raise bad_request("'messages' is missing", "messages", "missing_required_parameter")
    if not isinstance(messages, list):
        raise wrong_type("messages", "an array of messages", messages)
    if not messages:
        raise bad_request("'messages' is an empty array", "messages", "invalid_value")
    limits.max_answer(len(messages), "messages")  # a message has at least one token
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _message(message: Any, where: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise wrong_type(where, "an object", message)
    role = message.get("role")
    if role not in ROLES:
        shown = repr(role) if isinstance(role, str) else article(role)
        raise bad_request(
            f"'{where}.role' must be one of {', '.join(ROLES)}, it is {shown}",
            f"{where}.role",
            "invalid_value",
        )
    content = message.get("content")
    if content is None and role == "assistant":
        content = ""  # as clients send it back where the model called a tool
    return {**message, "content": _content(content, f"{where}.content")}


def _content(content: Any, where: str) -> str:
    """A string, or an array of text parts, which are joined with newlines."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise wrong_type(where, "a string or an array of text parts", content)
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise bad_request(f"'{where}' may only have parts of type 'text'", where, "invalid_value")
    return "\n".join(part["text"] for part in content)
