"""A chat's answer with reasoning and calls of tools split off from its text."""

from __future__ import annotations

import json
from typing import Any

from nic_frontend.api.answer import KEEP_ALIVE, NOTHING, Control, Events, Shown, Usage, compact, quoted
from nic_frontend.api.envelope import Envelope
from nic_frontend.api.logprobs import (
    TokenTexts,
    Told,
    Words,
    all_in_chat,
    chat_logprobs,
    prompt_logprobs,
)
from nic_frontend.api.parameters import Parameters
from nic_frontend.api.parts import Parts
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import numbers_of
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.parsing.delta import CallArguments, CallStart, Delta, Reasoning, Text
from nic_frontend.ring.request import Request
from nic_frontend.text.generation import Ending

CONTINUED = '"function":{'  # of a call that the client knows


class SplitAnswer:
    """One event per token, whether it shows something or not."""

    keep_alive = KEEP_ALIVE

    def __init__(
        self,
        model: str,
        parameters: Parameters,
        splitters: list[AnswerSplitter],
        texts: TokenTexts,
        *,
        echo: str,
        hides_reasoning: bool,
    ) -> None:
        """`echo` is what the content of each choice begins with."""
        self._envelope = Envelope(True, model, parameters)
        self._splitters = splitters
        self._hides_reasoning = hides_reasoning
        self._parameters = parameters
        self._texts = texts
        self._told: list[list[Told]] = [[] for _ in splitters]  # of an answer that is not streamed
        self._requests: list[Request] = []
        self._finds_reasoning = splitters[0].finds_reasoning
        if self._finds_reasoning:
            self._envelope.reasoning_tokens = lambda index: splitters[index].reasoning_tokens
        self._begun = [False for _ in splitters]
        self._parts = [Parts() for _ in splitters]
        self._echo: list[Delta] = [Text(echo)] if echo else []
        for each in self._parts:
            each.add(self._echo)
        self._tokens: list[list[int]] = [[] for _ in splitters]
        self._endings: list[Ending | None] = [None for _ in splitters]
        self._control: Control

    @property
    def may_end_early(self) -> bool:
        return any(splitter.may_end_early for splitter in self._splitters)

    def begin(self, requests: list[Request], control: Control) -> None:
        self._control = control
        self._envelope.begin(requests)
        self._requests = list(requests)

    def opening(self) -> Events:
        return []

    def events(self, shown: Shown) -> Events:
        return [self._events(shown)]

    def _events(self, shown: Shown) -> str:
        index, pieces, tokens, ending, n_tokens, words = shown
        if self._endings[index] is not None:
            return ""
        parts = []
        if not self._begun[index]:
            self._begun[index] = True
            parts.append(self._envelope.role(index))
            parts += [self._event(index, self._echo, 0, [], NOTHING)] if self._echo else []
        last = pieces.pop() if ending is not None and pieces else ""
        first = n_tokens - len(pieces) + (ending is None)  # the number of the first piece's token
        for n, (piece, token) in enumerate(zip(pieces, tokens, strict=False), first):
            deltas = self._split(index, piece)
            told = NOTHING if words is None else self._tell([token], words[n - first : n - first + 1])
            if self._endings[index] is not None:
                self._control.end(index, n)
                return "".join([*parts, self._end(index, deltas, n, [token], told)])
            parts.append(self._event(index, deltas, n, [token], told))
            if self._splitters[index].exhausted:
                self._control.conclude(index, n)
                return "".join(parts)
        if ending is not None:
            deltas = self._split(index, last)
            if self._endings[index] is not None:
                self._control.end(index, n_tokens)
            else:
                self._endings[index] = ending
                deltas = [*deltas, *self._splitters[index].finish()]
            rest = tokens[len(pieces) :]
            told = NOTHING if words is None or not rest else self._tell(rest, words[len(pieces) :])
            parts.append(self._end(index, deltas, n_tokens, rest, told))
        return "".join(parts)

    def _tell(self, tokens: list[int], words: Words) -> str:
        return compact(chat_logprobs(self._texts, tokens, words))

    def _split(self, index: int, piece: str) -> list[Delta]:
        """What a token shows. Sets the choice's ending if nothing more is wanted of it."""
        splitter = self._splitters[index]
        deltas = splitter.feed(piece)
        if splitter.complete:
            self._endings[index] = Ending("stop")
        return deltas

    def _event(self, index: int, deltas: list[Delta], n_tokens: int, tokens: list[int], told: str) -> str:
        envelope = self._envelope
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        delta = f',"delta":{{{self._delta(deltas)}}},"logprobs":{told},"finish_reason":null'
        return f"{envelope.choice}{index}{delta}{ids}{tail}"

    def _end(self, index: int, deltas: list[Delta], n_tokens: int, tokens: list[int], told: str) -> str:
        envelope, ending = self._envelope, self._endings[index]
        assert ending is not None
        reasons = (
            f'"finish_reason":"{self._finish_reason(index)}","stop_reason":{json.dumps(ending.stop_reason)}'
        )
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        delta = f',"delta":{{{self._delta(deltas)}}},"logprobs":{told},{reasons}'
        return f"{envelope.choice}{index}{delta}{ids}{tail}"

    def _finish_reason(self, index: int) -> str:
        ending = self._endings[index]
        assert ending is not None
        calls = self._splitters[index].called and ending.finish_reason == "stop"
        return "tool_calls" if calls else ending.finish_reason

    def _delta(self, deltas: list[Delta]) -> str:
        """The members of a delta. A call has one entry in it, however many of its pieces came."""
        if not deltas:
            return ""
        if len(deltas) == 1 and isinstance(deltas[0], Text):  # most of them
            return f'"content":{quoted(deltas[0].text)}'
        members = []
        reasoning = "".join(delta.text for delta in deltas if isinstance(delta, Reasoning))
        if reasoning and not self._hides_reasoning:
            members.append(f'"reasoning_content":{quoted(reasoning)},"reasoning":{quoted(reasoning)}')
        if text := "".join(delta.text for delta in deltas if isinstance(delta, Text)):
            members.append(f'"content":{quoted(text)}')
        heads: dict[int, str] = {}
        arguments: dict[int, str] = {}
        for delta in deltas:
            if isinstance(delta, CallStart):
                head = f'"id":"{delta.id}","type":"function",'
                heads[delta.index] = head + f'"function":{{"name":{quoted(delta.name)},'
            if isinstance(delta, CallStart | CallArguments):
                more = delta.text if isinstance(delta, CallArguments) else ""
                arguments[delta.index] = arguments.get(delta.index, "") + more
        if arguments:
            calls = (
                f'{{"index":{n},{heads.get(n, CONTINUED)}"arguments":{quoted(text)}}}}}'
                for n, text in arguments.items()
            )
            members.append(f'"tool_calls":[{",".join(calls)}]')
        return ",".join(members)

    def closing(self, usage: Usage) -> Events:
        return [self._envelope.closing(self._counted(usage))]

    def failed(self, error: ApiError) -> str:
        return self._envelope.failed(error)

    def add(self, shown: Shown) -> None:
        index, pieces, tokens, ending, n_tokens, words = shown
        if self._endings[index] is not None:
            return
        first = n_tokens - len(tokens) + 1  # the number of the first piece's token
        for n, piece in enumerate(pieces, first):
            self._parts[index].add(self._split(index, piece))
            ended = self._endings[index] is not None
            if ended or (self._splitters[index].exhausted and n < n_tokens + (ending is None)):
                self._tell_later(index, tokens[: n - first + 1], words)
                (self._control.end if ended else self._control.conclude)(index, min(n, n_tokens))
                return
        self._tell_later(index, tokens, words)
        if ending is not None:
            self._endings[index] = ending
            self._parts[index].add(self._splitters[index].finish())

    def _tell_later(self, index: int, tokens: list[int], words: Words | None) -> None:
        self._tokens[index] += tokens
        if words is not None:
            self._told[index].append((tokens, words[: len(tokens)]))

    def whole(self, usage: Usage) -> dict[str, Any]:
        choices = [self._whole_choice(index) for index in range(len(self._parts))]
        body = {**self._envelope.head, "choices": choices, "usage": self._counted(usage).body()}
        if self._parameters.shows_prompt_logprobs:
            body["prompt_logprobs"] = prompt_logprobs(self._texts, self._requests[0])
        if self._envelope.shows_ids:
            for index, choice in enumerate(choices):
                choice["token_ids"] = numbers_of(self._tokens[index])
            body["prompt_token_ids"] = self._envelope.prompt_ids(0)
        return body

    def _whole_choice(self, index: int) -> dict[str, Any]:
        parts, ending = self._parts[index], self._endings[index]
        assert ending is not None
        text, calls = parts.text(Text), parts.calls
        message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
        message["refusal"] = None
        if self._finds_reasoning and not self._hides_reasoning:
            reasoning = parts.text(Reasoning) or None
            message |= {"reasoning_content": reasoning, "reasoning": reasoning}
        if calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
                for call in calls
            ]
        told = (
            None
            if self._parameters.sampling.logprobs is None
            else all_in_chat(self._texts, self._told[index])
        )
        return {
            "index": index,
            "message": message,
            "logprobs": told,
            "finish_reason": self._finish_reason(index),
            "stop_reason": ending.stop_reason,
        }

    def _counted(self, usage: Usage) -> Usage:
        if not self._finds_reasoning:
            return usage
        reasoning = sum(splitter.reasoning_tokens for splitter in self._splitters)
        return Usage(usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, reasoning)
