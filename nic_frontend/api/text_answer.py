"""Answers that are text alone: completions, and chats in which nothing else is looked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from nic_frontend.api.answer import KEEP_ALIVE, NOTHING, Control, Events, Shown, Usage, compact, quoted
from nic_frontend.api.envelope import Envelope
from nic_frontend.api.logprobs import (
    CompletionLogprobs,
    TokenTexts,
    Told,
    Words,
    all_in_chat,
    chat_logprobs,
    prompt_logprobs,
    prompt_words,
)
from nic_frontend.api.parameters import Parameters
from nic_frontend.errors import ApiError
from nic_frontend.http.long_json import numbers_of
from nic_frontend.http.long_json import pieces as written_in_pieces
from nic_frontend.ring.request import Request
from nic_frontend.text.generation import Ending


class TextAnswer:
    """One event per token, whether it shows text or not. `echoes` are what the choices' texts begin with."""

    keep_alive = KEEP_ALIVE
    may_end_early = False

    def __init__(
        self, chat: bool, model: str, parameters: Parameters, echoes: list[str], texts: TokenTexts
    ) -> None:
        self._chat = chat
        self._parameters = parameters
        self._texts_of = texts
        skips = parameters.skip_special_tokens
        self._told = [CompletionLogprobs(texts, skips_special=skips) for _ in echoes]
        self._logprobs: list[list[Told]] = [[] for _ in echoes]  # of an answer that is not streamed
        self._tells_echoes = not chat and parameters.sampling.logprobs is not None and any(echoes)
        self._requests: list[Request] = []
        self._envelope = Envelope(chat, model, parameters)
        self._echoes = echoes
        self._unseen: list[str | None] = [*echoes]  # None: it has been sent, with the first token
        self._texts = [[echo] for echo in echoes]
        self._tokens: list[list[int]] = [[] for _ in echoes]
        self._endings: list[Ending | None] = [None for _ in echoes]
        self._text = ',"delta":{"content":' if chat else ',"text":'
        self._text_end = "}" if chat else ""

    def begin(self, requests: list[Request], control: Control) -> None:
        self._envelope.begin(requests)
        self._requests = list(requests)

    def opening(self) -> Events:
        return []

    def events(self, shown: Shown) -> Events:
        events = self._events(shown)
        return [events] if self._tells_echoes else ["".join(events)]

    def _events(self, shown: Shown) -> Iterator[str]:
        index, pieces, tokens, ending, n_tokens, words = shown
        if (echo := self._unseen[index]) is not None:
            self._unseen[index] = None
            if self._chat:
                yield self._envelope.role(index)
            if echo:
                before, behind = self._around(index, echo, 0, [])
                yield before
                if not self._tells_echoes:
                    yield NOTHING
                else:
                    yield from written_in_pieces(self._all_told(index, []), compact)
                yield behind
        last = pieces.pop() if ending is not None and pieces else ""
        first = n_tokens - len(pieces) + (ending is None)  # the number of the first piece's token
        for n, (piece, token) in enumerate(zip(pieces, tokens, strict=False), first):
            told = (
                NOTHING
                if words is None
                else compact(self._tell(index, [token], words[n - first : n - first + 1]))
            )
            yield told.join(self._around(index, piece, n, [token]))
        if ending is not None:
            rest = tokens[len(pieces) :]
            told = NOTHING
            if rest and words is not None:
                told = compact(self._tell(index, rest, words[len(pieces) :]))
            yield self._end(index, last, ending, n_tokens, rest, told)

    def _tell(self, index: int, tokens: list[int], words: Words) -> dict[str, Any]:
        """The log-probabilities of a choice's next tokens."""
        if self._chat:
            return chat_logprobs(self._texts_of, tokens, words)
        return self._told[index].told(tokens, words)

    def _all_told(self, index: int, told: list[Told]) -> dict[str, Any]:
        """Those of a choice, behind those of its echo."""
        if self._chat:
            return all_in_chat(self._texts_of, told)
        request, echo = self._requests[index], self._echoes[index]
        prompt = (request.prompt.tolist(), prompt_words(request)) if echo else None
        return self._told[index].all_told(told, prompt, echo)

    def _around(self, index: int, text: str, n_tokens: int, tokens: list[int]) -> tuple[str, str]:
        """What an event has before and behind its log-probabilities."""
        envelope = self._envelope
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        shown = f'{self._text}{quoted(text)}{self._text_end},"logprobs":'
        return f"{envelope.choice}{index}{shown}", f',"finish_reason":null{ids}{tail}'

    def _end(self, index: int, text: str, ending: Ending, n_tokens: int, tokens: list[int], told: str) -> str:
        envelope = self._envelope
        shown = f"{self._text}{quoted(text)}{self._text_end}" if text or not self._chat else ',"delta":{}'
        reasons = f'"finish_reason":"{ending.finish_reason}","stop_reason":{json.dumps(ending.stop_reason)}'
        ids, tail = envelope.ids(index, tokens), envelope.tail(index, n_tokens)
        return f'{envelope.choice}{index}{shown},"logprobs":{told},{reasons}{ids}{tail}'

    def closing(self, usage: Usage) -> Events:
        return [self._envelope.closing(usage)]

    def failed(self, error: ApiError) -> str:
        return self._envelope.failed(error)

    def add(self, shown: Shown) -> None:
        self._texts[shown.choice] += shown.pieces
        self._tokens[shown.choice] += shown.tokens
        if shown.logprobs is not None:
            self._logprobs[shown.choice].append((shown.tokens, shown.logprobs))
        if shown.ending is not None:
            self._endings[shown.choice] = shown.ending

    def whole(self, usage: Usage) -> dict[str, Any]:
        choices = [self._whole_choice(index) for index in range(len(self._texts))]
        body = {**self._envelope.head, "choices": choices, "usage": usage.body()}
        if self._parameters.shows_prompt_logprobs:
            for index, choice in enumerate(choices):
                told = prompt_logprobs(self._texts_of, self._requests[index])
                (body if self._chat else choice)["prompt_logprobs"] = told
        if self._envelope.shows_ids:
            for index, choice in enumerate(choices):
                choice["token_ids"] = numbers_of(self._tokens[index])
                (body if self._chat else choice)["prompt_token_ids"] = self._envelope.prompt_ids(index)
        return body

    def _whole_logprobs(self, index: int) -> dict[str, Any] | None:
        if self._parameters.sampling.logprobs is None:
            return None
        return self._all_told(index, self._logprobs[index])

    def _whole_choice(self, index: int) -> dict[str, Any]:
        text, ending = "".join(self._texts[index]), self._endings[index]
        assert ending is not None
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            "index": index,
            **({"message": message} if self._chat else {"text": text}),
            "logprobs": self._whole_logprobs(index),
            "finish_reason": ending.finish_reason,
            "stop_reason": ending.stop_reason,
        }
