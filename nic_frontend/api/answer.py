"""Answers in OpenAI's form: whole objects, and events whose constant parts are rendered once per stream."""

from __future__ import annotations

import json
import secrets
import time
from dataclasses import dataclass
from json.encoder import encode_basestring
from typing import Any

from nic_frontend.errors import ApiError
from nic_frontend.generation import Ending
from nic_frontend.request import Request

DONE = "data: [DONE]\n\n"
# Ends of lines to many readers of lines (httpx, str.splitlines), and none in server-sent events.
LINE_ENDS = {ord(character): f"\\u{ord(character):04x}" for character in "\x85\u2028\u2029"}


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int  # of the prompts

    def body(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        }


class Answer:
    """The envelope of one call's answer: its id, time and model."""

    def __init__(self, chat: bool, model: str) -> None:
        self._chat = chat
        self._head = {
            "id": ("chatcmpl-" if chat else "cmpl-") + secrets.token_hex(16),
            "object": "chat.completion" if chat else "text_completion",
            "created": int(time.time()),
            "model": model,
        }

    def whole(
        self,
        texts: list[str],
        endings: list[Ending],
        usage: Usage,
        tokens: list[list[int]],
        shows_ids: list[Request] | None,
    ) -> dict[str, Any]:
        """`tokens` are those of each choice; for `shows_ids` see Events."""
        choices = [self._choice(i, *pair) for i, pair in enumerate(zip(texts, endings, strict=True))]
        body = {**self._head, "choices": choices, "usage": usage.body()}
        for choice, request in zip(choices, shows_ids or (), strict=False):
            choice["token_ids"] = tokens[request.index]
            (body if self._chat else choice)["prompt_token_ids"] = request.prompt.tolist()
        return body

    def _choice(self, index: int, text: str, ending: Ending) -> dict[str, Any]:
        shown = {"message": {"role": "assistant", "content": text}} if self._chat else {"text": text}
        return {
            "index": index,
            **shown,
            "logprobs": None,
            "finish_reason": ending.finish_reason,
            "stop_reason": ending.stop_reason,
        }

    def events(
        self, include_usage: bool, continuous: list[Request] | None, shows_ids: list[Request] | None
    ) -> Events:
        """See Events."""
        kind = "chat.completion.chunk" if self._chat else "text_completion"
        return Events(self._chat, {**self._head, "object": kind}, include_usage, continuous, shows_ids)


class Events:
    """Server-sent events of one stream:

    `data: {json}`, one per token whether it shows text or not, then [DONE] (API reference, "Streaming").
    `continuous` are the choices' requests where every event is to say how much its choice has used so far
    (vLLM's continuous_usage_stats). `n_tokens` is the number of tokens up to that event. `shows_ids` are the
    choices' requests where every event is to have its token's id, and the first one of a choice the prompt's
    (vLLM's return_token_ids).
    """

    def __init__(
        self,
        chat: bool,
        head: dict[str, Any],
        include_usage: bool,
        continuous: list[Request] | None,
        shows_ids: list[Request] | None,
    ) -> None:
        self._chat = chat
        self._continuous = continuous
        self._prompts = {r.index: written(r.prompt.tolist()) for r in shows_ids or ()}  # not shown yet
        self._shows_ids = shows_ids is not None
        self._head = "data: " + compact(head)[:-1]
        self._choice = self._head + ',"choices":[{"index":'
        self._text = ',"delta":{"content":' if chat else ',"text":'
        self._text_end = "}" if chat else ""
        self._open = self._text_end + ',"logprobs":null,"finish_reason":null'
        self._no_usage = "}]" + (',"usage":null' if include_usage else "") + "}\n\n"

    def _tail(self, index: int, n_tokens: int) -> str:
        if self._continuous is None:
            return self._no_usage
        request = self._continuous[index]
        usage = Usage(len(request.prompt), n_tokens, request.cached_tokens)
        return f'}}],"usage":{compact(usage.body())}}}\n\n'

    def _ids(self, index: int, tokens: list[int]) -> str:
        if not self._shows_ids:
            return ""
        prompt = self._prompts.pop(index, None)  # shown before, unless the event is a completion's first
        return f',"token_ids":{written(tokens)}' + (f',"prompt_token_ids":{prompt}' if prompt else "")

    def role(self, index: int) -> str:
        """The first event of a chat choice; empty for a completion, which has none."""
        if not self._chat:
            return ""
        prompt = self._prompts.pop(index, None)
        shown = f',"prompt_token_ids":{prompt}' if prompt else ""
        delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        choice = f'{{"index":{index},{delta}{self._tail(index, 0)}'
        return f'{self._head}{shown},"choices":[{choice}'

    def text(self, index: int, text: str, n_tokens: int, tokens: list[int]) -> str:
        ids, tail = self._ids(index, tokens), self._tail(index, n_tokens)
        return f"{self._choice}{index}{self._text}{quoted(text)}{self._open}{ids}{tail}"

    def end(self, index: int, text: str, ending: Ending, n_tokens: int, tokens: list[int]) -> str:
        shown = f"{self._text}{quoted(text)}{self._text_end}" if text or not self._chat else ',"delta":{}'
        reasons = f'"finish_reason":"{ending.finish_reason}","stop_reason":{json.dumps(ending.stop_reason)}'
        ids, tail = self._ids(index, tokens), self._tail(index, n_tokens)
        return f'{self._choice}{index}{shown},"logprobs":null,{reasons}{ids}{tail}'

    def usage(self, usage: Usage) -> str:
        return f'{self._head},"choices":[],"usage":{compact(usage.body())}}}\n\n'

    @staticmethod
    def error(error: ApiError) -> str:
        return f"data: {compact(error.body)}\n\n"


def quoted(text: str) -> str:
    """A string as JSON. What is not ASCII stays as it is, but for ends of lines."""
    literal = encode_basestring(text)
    return literal if literal.isascii() else literal.translate(LINE_ENDS)


def written(tokens: list[int]) -> str:
    return f"[{','.join(map(str, tokens))}]"


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
