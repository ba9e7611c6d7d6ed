"""Answers of /v1/responses: an object with items, and its typed events (API reference, "Responses")."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from nic_frontend.api.answer import Events, Usage, compact
from nic_frontend.api.block_answer import BlockAnswer
from nic_frontend.api.logprobs import TokenTexts, Told, Words, chat_entries, entries_of
from nic_frontend.api.parameters import Parameters
from nic_frontend.api.parts import Part
from nic_frontend.api.schema.responses import FunctionTool, ResponsesRequest
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import pieces
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import CallStart, Delta, Reasoning, Text

Item = dict[str, Any]
PREFIXES = {Text: "msg_", Reasoning: "rs_", CallStart: "fc_"}
DELTAS = {
    Text: "response.output_text",
    Reasoning: "response.reasoning_text",
    CallStart: "response.function_call_arguments",
}


class ResponsesAnswer(BlockAnswer):
    def __init__(
        self,
        model: str,
        request: ResponsesRequest,
        body: dict[str, Any],
        tools: list[FunctionTool],
        parameters: Parameters,
        splitter: AnswerSplitter,
        texts: TokenTexts,
    ) -> None:
        super().__init__(splitter)
        self._texts = texts
        self._waiting: list[Told] = []  # tokens, each alone, whose text nobody has seen yet
        self._newest: list[Told] = []  # those that the last delta shows
        self._told: dict[int, list[Told]] = defaultdict(list)  # by part
        self._sequence = 0
        self._ids: list[str] = []  # of the items
        self.stored = False  # where it is found again by its id
        self.sealed: Callable[[str], str | None] | None = None  # thoughts, for clients that bring them back
        self._seals: dict[int, str | None] = {}  # of what was thought, by part
        values = parameters.sampling.values
        self._response = {
            "id": "resp_" + secrets.token_hex(24),
            "object": "response",
            "created_at": int(time.time()),
            "background": bool(request.background),
            "error": None,
            "incomplete_details": None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": model,
            "output": [],
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": request.previous_response_id,
            "reasoning": {"effort": request.reasoning.effort if request.reasoning else None, "summary": None},
            "temperature": values["temperature"],
            "text": {"format": {"type": "text"}} | (body.get("text") or {}),
            "tool_choice": body.get("tool_choice") or "auto",
            "top_logprobs": request.top_logprobs or 0,
            "tools": [_told_tool(tool) for tool in tools],
            "top_p": values["top_p"],
            "truncation": "disabled",
            "usage": None,
        }

    @property
    def id(self) -> str:
        return str(self._response["id"])

    def _event(self, kind: str, **fields: Any) -> str:
        self._sequence += 1
        event = {"type": kind, "sequence_number": self._sequence - 1, **fields}
        return f"event: {kind}\ndata: {compact(event)}\n\n"

    def _long_event(self, kind: str, **fields: Any) -> Iterator[str]:
        """The same, which is made when it is sent, but for its number."""
        self._sequence += 1
        event = {"type": kind, "sequence_number": self._sequence - 1, **fields}
        return chain([f"event: {kind}\ndata: "], pieces(event, compact), ["\n\n"])

    def opening(self) -> Events:
        kinds = ("response.created", "response.in_progress")
        return [self._long_event(kind, response=self.state("in_progress")) for kind in kinds]

    def state(self, status: str) -> dict[str, Any]:
        """The response without its output."""
        return {**self._response, "store": self.stored, "status": status}

    def _id(self, part: Part) -> str:
        index = part.index
        while len(self._ids) <= index:
            kind = self.parts.listed[len(self._ids)].kind
            self._ids.append(PREFIXES[kind] + secrets.token_hex(24))
        return self._ids[index]

    def _place(self, part: Part) -> dict[str, Any]:
        """Where a delta of a part belongs."""
        place = {"item_id": self._id(part), "output_index": part.index}
        return place if part.kind is CallStart else {**place, "content_index": 0}

    def _item(self, part: Part, status: str, *, empty: bool = False) -> Item:
        item = {"id": self._id(part), "type": "message", "status": status}
        if part.kind is CallStart:
            call = {"call_id": part.id, "name": part.name, "arguments": "" if empty else part.text}
            return {**item, "type": "function_call", **call}
        content = [] if empty else [self._content(part)]
        if part.kind is Reasoning:
            return {**item, "type": "reasoning", "summary": [], "content": content, **self._seal(part, empty)}
        return {**item, "role": "assistant", "content": content}

    def _seal(self, part: Part, empty: bool) -> dict[str, str | None]:
        """What a complete thought becomes where the client wants to bring it back. It is sealed once."""
        if self.sealed is None or empty:
            return {}
        if part.index not in self._seals:
            self._seals[part.index] = self.sealed(part.text)
        return {"encrypted_content": self._seals[part.index]}

    def _content(self, part: Part, *, empty: bool = False) -> Item:
        text = "" if empty else part.text
        if part.kind is Reasoning:
            return {"type": "reasoning_text", "text": text}
        told = [] if empty else self._told[part.index]
        logprobs = entries_of(self._texts, told)
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}

    def told(self, token: int, words: Words) -> None:
        self._waiting.append(([token], words))

    def added(self, delta: Delta) -> None:
        """Log-probabilities are those of text: what a part of another kind shows, and marks that nobody is
        shown, have no place for them.
        """
        self._newest, left = [], len(delta.text.encode()) if isinstance(delta, Text) else 0
        while self._waiting and left > 0:
            self._newest.append(last := self._waiting.pop())
            left -= len(self._texts.bytes_of(last[0][0]))
        self._newest.reverse()
        self._waiting.clear()
        self._told[self.parts.listed[-1].index] += self._newest

    def opened(self, part: Part) -> str:
        index, item = part.index, self._item(part, "in_progress", empty=True)
        text = self._event("response.output_item.added", output_index=index, item=item)
        if part.kind is not CallStart:
            content = self._content(part, empty=True) | ({"logprobs": []} if part.kind is Text else {})
            text += self._event("response.content_part.added", **self._place(part), part=content)
        return text

    def continued(self, part: Part, text: str) -> str:
        more: dict[str, Any] = {}
        if part.kind is Text:
            more["logprobs"] = [entry for told in self._newest for entry in chat_entries(self._texts, *told)]
        return self._event(f"{DELTAS[part.kind]}.delta", **self._place(part), delta=text, **more)

    def closed(self, part: Part) -> Events:
        place, index = self._place(part), part.index
        done: dict[str, Any] = {"text": part.text}
        if part.kind is CallStart:
            done = {"arguments": part.text, "name": part.name}
        if part.kind is Text:
            done["logprobs"] = entries_of(self._texts, self._told[index])
        events: Events = [self._long_event(f"{DELTAS[part.kind]}.done", **place, **done)]
        if part.kind is not CallStart:
            events.append(self._long_event("response.content_part.done", **place, part=self._content(part)))
        item = self._item(part, self._status(part))
        return [*events, self._long_event("response.output_item.done", output_index=index, item=item)]

    def _status(self, part: Part) -> str:
        """Of a part: only the last one may have been cut off."""
        if self.ending is None or part is not self.parts.listed[-1]:
            return "completed"
        cut = self.ending.finish_reason == "length"
        if part.kind is CallStart:  # a stop string cuts arguments, too; behind them, nothing is missing
            cut = not self.splitter.called
        return "incomplete" if cut else "completed"

    def whole(self, usage: Usage) -> dict[str, Any]:
        cut = self.finish_reason == "length"
        return {
            **self.state("incomplete" if cut else "completed"),
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._item(part, self._status(part)) for part in self.parts.listed],
            "usage": self._usage(usage),
        }

    def _usage(self, usage: Usage) -> dict[str, Any]:
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": self.splitter.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }

    def closing(self, usage: Usage) -> Events:
        response = self.whole(usage)
        return [self._long_event(f"response.{response['status']}", response=response)]

    def failed(self, error: ApiError) -> str:
        return self._event("response.failed", response=self.state("failed") | {"error": failure_of(error)})


def failure_of(error: ApiError) -> dict[str, str]:
    """As a response tells it."""
    told: Any = error.body["error"]
    return {"code": told["code"] or "server_error", "message": told["message"]}


def _told_tool(tool: FunctionTool) -> Item:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters or {},
        "strict": bool(tool.strict),
    }
