"""Answers that are text alone: completions, and chats in which nothing else is looked for."""

from __future__ import annotations

import json
from typing import Any

from nic_frontend.api.answer import Control, Shown, Usage, quoted
from nic_frontend.api.envelope import Envelope
from nic_frontend.api.parameters import Parameters
from nic_frontend.errors import ApiError
from nic_frontend.generation import Ending
from nic_frontend.request import Request


class TextAnswer:
    """One event per token, whether it shows text or not. `echoes` are what the choices' texts begin with."""

    def __init__(self, chat: bool, model: str, parameters: Parameters, echoes: list[str]) -> None:
        self._chat = chat
        self._envelope = Envelope(chat, model, parameters)
        self._unseen: list[str | None] = [*echoes]  # None: it has been sent, with the first token
        self._texts = [[echo] for echo in echoes]
        self._tokens: list[list[int]] = [[] for _ in echoes]
        self._endings: list[Ending | None] = [None for _ in echoes]
        self._text = ',"delta":{"content":' if chat else ',"text":'
        self._text_end = "}" if chat else ""
        self._open = self._text_end + ',"logprobs":null,"finish_reason":null'

    def begin(self, requests: list[Request], control: Control) -> None:
        self._envelope.begin(requests)

    def opening(self) -> str:
        return ""

    def events(self, shown: Shown) -> str:
        index, pieces, tokens, ending, n_tokens = shown
        parts = []
        if (echo := self._unseen[index]) is not None:
            self._unseen[index] = None
            parts.append(self._envelope.role(index) if self._chat else "")
            parts.append(self._event(index, echo, 0, []) if echo else "")
        last = pieces.pop() if ending is not None and pieces else ""
        first = n_tokens - len(pieces) + (ending is None)  # the number of the first piece's token
        for n, (piece, token) in enumerate(zip(pieces, tokens, strict=False), first):
            parts.append(self._event(index, piece, n, [token]))
        if ending is not None:
            parts.append(self._end(index, last, ending, n_tokens, tokens[len(pieces) :]))
        return "".join(parts)

    def _event(self, index: int, text: str, n_tokens: int, tokens: list[int]) -> str:
        envelope = self._envelope
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        return f"{envelope.choice}{index}{self._text}{quoted(text)}{self._open}{ids}{tail}"

    def _end(self, index: int, text: str, ending: Ending, n_tokens: int, tokens: list[int]) -> str:
        envelope = self._envelope
        shown = f"{self._text}{quoted(text)}{self._text_end}" if text or not self._chat else ',"delta":{}'
        reasons = f'"finish_reason":"{ending.finish_reason}","stop_reason":{json.dumps(ending.stop_reason)}'
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        return f'{envelope.choice}{index}{shown},"logprobs":null,{reasons}{ids}{tail}'

    def closing(self, usage: Usage) -> str:
        return self._envelope.closing(usage)

    def failed(self, error: ApiError) -> str:
        return self._envelope.failed(error)

    def add(self, shown: Shown) -> None:
        self._texts[shown.choice] += shown.pieces
        self._tokens[shown.choice] += shown.tokens
        if shown.ending is not None:
            self._endings[shown.choice] = shown.ending

    def whole(self, usage: Usage) -> dict[str, Any]:
        choices = [self._whole_choice(index) for index in range(len(self._texts))]
        body = {**self._envelope.head, "choices": choices, "usage": usage.body()}
        if self._envelope.shows_ids:
            for index, choice in enumerate(choices):
                choice["token_ids"] = self._tokens[index]
                (body if self._chat else choice)["prompt_token_ids"] = self._envelope.prompt_ids(index)
        return body

    def _whole_choice(self, index: int) -> dict[str, Any]:
        text, ending = "".join(self._texts[index]), self._endings[index]
        assert ending is not None
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": index,
            **({"message": message} if self._chat else {"text": text}),
            "logprobs": None,
            "finish_reason": ending.finish_reason,
            "stop_reason": ending.stop_reason,
        }
