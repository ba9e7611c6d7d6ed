"""Log-probabilities as the endpoints write them.

What belongs to a token comes as words (ringbuffer/extents.h): [tokens][1 + likeliest].
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.request import Request, words_from, words_of
from ringbuffer.extents import logprobs

Words = NDArray[np.uint64]
Entry = dict[str, Any]
NO_WORDS: Words = np.zeros((0, 1), np.uint64)
LEAST = -9999.0  # what JSON has in the place of minus infinity, as in vLLM


def numbers(words: Words) -> Iterator[tuple[int, float, list[tuple[int, float]]]]:
    """Of each token its rank (0: not known), its log-probability, and the likeliest with theirs."""
    first, second = logprobs(words)
    for (rank, *tokens), (own, *of_tokens) in zip(
        first.tolist(), np.maximum(second, LEAST).tolist(), strict=True
    ):
        yield rank, own, list(zip(tokens, of_tokens, strict=True))


class TokenTexts:
    """What stands for a token: its text, or its bytes where these are no text (as in OpenAI's). `by_id`: told
    of an answer's tokens are their ids.
    """

    def __init__(
        self, bytes_of: Callable[[int], bytes], special: frozenset[int] = frozenset(), by_id: bool = False
    ) -> None:
        self.bytes_of = bytes_of
        self.special = special
        self._by_id = by_id

    def __call__(self, token: int) -> str:
        raw = self.bytes_of(token)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self._by_id else self(token)

    def entry(self, token: int, logprob: float) -> Entry:
        return {"token": self.name(token), "logprob": logprob, "bytes": list(self.bytes_of(token))}


def chat_entries(texts: TokenTexts, tokens: Sequence[int], words: Words) -> list[Entry]:
    """As chats and responses have them."""
    return [
        {**texts.entry(token, own), "top_logprobs": [texts.entry(*likely) for likely in likeliest]}
        for token, (_, own, likeliest) in zip(tokens, numbers(words), strict=False)
    ]


def chat_logprobs(texts: TokenTexts, tokens: Sequence[int], words: Words) -> dict[str, Any]:
    return told_in_chat(chat_entries(texts, tokens, words))


def told_in_chat(entries: list[Entry]) -> dict[str, Any]:
    return {"content": entries, "refusal": None}


class CompletionLogprobs:
    """Of one choice of a completion, as its tokens come: their texts stand one behind the other, but for
    special tokens that are not shown.
    """

    def __init__(self, texts: TokenTexts, *, skips_special: bool) -> None:
        self._texts = texts
        self._skips_special = skips_special
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._offset = 0

    def told(self, tokens: Sequence[int], words: Words, *, echo: str | None = None) -> dict[str, Any]:
        """Of the next tokens; those of a prompt, if its `echo` is given, of whose first nothing is known."""
        told: dict[str, list[Any]] = {
            "text_offset": [],
            "token_logprobs": [],
            "tokens": [],
            "top_logprobs": [],
        }
        for token, (_, own, likeliest) in zip(tokens, numbers(words), strict=False):
            first = echo is not None and not told["tokens"]
            text, name = self._texts(token), self._texts.name(token)
            top = {name: own} | {self._texts.name(other): likely for other, likely in reversed(likeliest)}
            told["text_offset"].append(self._offset)
            told["token_logprobs"].append(None if first else own)
            told["tokens"].append(name)
            told["top_logprobs"].append(None if first else top)
            if token not in self._texts.special:
                self._offset += len(self._decode(self._texts.bytes_of(token)))
            elif not self._skips_special if echo is None else echo.startswith(text, self._offset):
                self._offset += len(text)
        return told


def prompt_words(request: Request) -> Words:
    """What was told of a request's prompt."""
    return words_from(request.prompt_logprobs, words_of(request.sampling.prompt_logprobs))


def prompt_logprobs(texts: TokenTexts, request: Request) -> list[dict[str, Entry] | None]:
    """In vLLM's form: of each token but the first, by token ids."""
    told: list[dict[str, Entry] | None] = [None]
    tokens = request.prompt.tolist()
    for token, (rank, own, likeliest) in zip(tokens[1:], numbers(prompt_words(request)[1:]), strict=True):
        ranked = [(token, own, rank), *((*likely, place) for place, likely in enumerate(likeliest, 1))]
        told.append(
            {
                str(other): {"logprob": logprob, "rank": place, "decoded_token": texts(other)}
                for other, logprob, place in ranked
            }
        )
    return told
