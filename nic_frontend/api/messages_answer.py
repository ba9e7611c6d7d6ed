"""Answers of /v1/messages: an object with content blocks, and its typed events, as Anthropic defines them."""

from __future__ import annotations

import secrets
from typing import Any

from nic_frontend.api.answer import Events, Usage, compact
from nic_frontend.api.block_answer import BlockAnswer
from nic_frontend.api.parts import Part
from nic_frontend.errors import ApiError, anthropic_body
from nic_frontend.http.json_text import read_json
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import CallStart, Reasoning

STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


class MessagesAnswer(BlockAnswer):
    """`fills_context`: what ends an answer that is cut off is the context, not what the request asked for."""

    keep_alive = 'event: ping\ndata: {"type":"ping"}\n\n'  # as Anthropic's API has it

    def __init__(self, model: str, splitter: AnswerSplitter, *, fills_context: bool) -> None:
        super().__init__(splitter)
        self._fills_context = fills_context
        self._head = {
            "id": "msg_" + secrets.token_hex(12),
            "type": "message",
            "role": "assistant",
            "model": model,
        }

    def opening(self) -> Events:
        usage = self._usage(Usage(len(self.requests[0].prompt), 0, 0))
        message: dict[str, Any] = {
            **self._head,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        return [event("message_start", message=message)]

    def opened(self, part: Part) -> str:
        return self._block(part, "content_block_start", content_block=block_of(part, empty=True))

    def continued(self, part: Part, text: str) -> str:
        if part.kind is CallStart:
            delta = {"type": "input_json_delta", "partial_json": text}
        elif part.kind is Reasoning:
            delta = {"type": "thinking_delta", "thinking": text}
        else:
            delta = {"type": "text_delta", "text": text}
        return self._block(part, "content_block_delta", delta=delta)

    def closed(self, part: Part) -> Events:
        stop = self._block(part, "content_block_stop")
        if part.kind is not Reasoning:
            return [stop]
        delta = {"type": "signature_delta", "signature": new_signature()}
        return [self._block(part, "content_block_delta", delta=delta), stop]

    def _block(self, part: Part, kind: str, **fields: Any) -> str:
        return event(kind, index=part.index, **fields)

    def closing(self, usage: Usage) -> Events:
        delta = event("message_delta", delta=self._stopped(), usage=self._usage(usage))
        return [delta, event("message_stop")]

    def failed(self, error: ApiError) -> str:
        return f"event: error\ndata: {compact(anthropic_body(error))}\n\n"

    def whole(self, usage: Usage) -> dict[str, Any]:
        content = [block_of(part) for part in self.parts.listed]
        return {**self._head, "content": content, **self._stopped(), "usage": self._usage(usage)}

    def _stopped(self) -> dict[str, Any]:
        assert self.ending is not None
        found = self.ending.stop_reason
        if isinstance(found, str) and self.finish_reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": found}
        if self._fills_context and self.finish_reason == "length":
            return {"stop_reason": "model_context_window_exceeded", "stop_sequence": None}
        return {"stop_reason": STOP_REASONS[self.finish_reason], "stop_sequence": None}

    @staticmethod
    def _usage(usage: Usage) -> dict[str, Any]:
        """What was cached is no input, as Anthropic counts."""
        return {
            "input_tokens": usage.prompt_tokens - usage.cached_tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": usage.cached_tokens,
            "output_tokens": usage.completion_tokens,
        }


def event(kind: str, **fields: Any) -> str:
    return f"event: {kind}\ndata: {compact({'type': kind, **fields})}\n\n"


def new_signature() -> str:
    """Of thoughts, which in Anthropic's API have one. It says nothing, and is not read when it comes back."""
    return secrets.token_hex(32)


def block_of(part: Part, *, empty: bool = False) -> dict[str, Any]:
    text = "" if empty else part.text
    if part.kind is CallStart:
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": read_input(text)}
    if part.kind is Reasoning:
        return {"type": "thinking", "thinking": text, "signature": "" if empty else new_signature()}
    return {"type": "text", "text": text}


def read_input(text: str) -> dict[str, Any]:
    """A call's arguments as an object. Those that were cut off, are none or have too much become an empty
    one."""
    try:
        found = read_json(text.encode(errors="surrogatepass"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
