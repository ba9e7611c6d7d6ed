"""Log-probabilities as the endpoints write them.

What belongs to a token comes as words (ringbuffer/extents.h): [tokens][1 + likeliest].
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.http.long_json import Batches
from nic_frontend.ring.request import Request, words_from, words_of
from ringbuffer.extents import logprobs

Words = NDArray[np.uint64]
Entry = dict[str, Any]
Told = tuple[Sequence[int], Words]  # tokens, and what is known of them
NO_WORDS: Words = np.zeros((0, 1), np.uint64)
PART = 128  # tokens whose log-probabilities are written at once: 2 ms with 20 likeliest
LEAST = -9999.0  # what JSON has in the place of minus infinity, as in vLLM


def numbers(words: Words, least: float = LEAST) -> Iterator[tuple[int, float, list[tuple[int, float]]]]:
    """Of each token its rank (0: not known), its log-probability, and the likeliest with theirs. No
    log-probability is less than `least`.
    """
    first, second = logprobs(words)
    for (rank, *tokens), (own, *of_tokens) in zip(
        first.tolist(), np.maximum(second, least).tolist(), strict=True
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
    return {"content": chat_entries(texts, tokens, words), "refusal": None}


def all_in_chat(texts: TokenTexts, told: list[Told]) -> dict[str, Any]:
    """Those of a whole answer."""
    return {"content": entries_of(texts, told), "refusal": None}


def entries_of(texts: TokenTexts, told: list[Told]) -> Batches:
    return Batches(lambda: (chat_entries(texts, *part) for part in in_parts(told)))


def in_parts(told: Iterable[Told]) -> Iterator[Told]:
    """The same, of at most PART tokens each."""
    for tokens, words in told:
        for start in range(0, len(words), PART):
            yield tokens[start : start + PART], words[start : start + PART]


COLUMNS = ("text_offset", "token_logprobs", "tokens", "top_logprobs")


class CompletionLogprobs:
    """Of one choice of a completion, as its tokens come: their texts stand one behind the other, but for
    special tokens that are not shown.
    """

    def __init__(self, texts: TokenTexts, *, skips_special: bool) -> None:
        self._texts = texts
        self._skips_special = skips_special
        self._is_first = True
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._offset = 0

    def told(self, tokens: Sequence[int], words: Words, *, echo: str | None = None) -> dict[str, Any]:
        """Of the next tokens; those of a prompt, if its `echo` is given, of whose first nothing is known."""
        told: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        for token, (_, own, likeliest) in zip(tokens, numbers(words), strict=False):
            first = echo is not None and self._is_first
            self._is_first = False
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

    def all_told(self, told: list[Told], prompt: Told | None = None, echo: str = "") -> dict[str, Batches]:
        """Of all that was told of an answer, behind that of the prompt that it echoes, as long arrays. Each
        is made for itself, and the last one leaves this object behind the last of these tokens.
        """

        def column(name: str) -> Batches:
            def made() -> Iterator[list[Any]]:
                of = self
                if name != COLUMNS[-1]:
                    of = CompletionLogprobs(self._texts, skips_special=self._skips_special)
                for tokens, words in in_parts([prompt] if prompt else []):
                    yield of.told(tokens, words, echo=echo)[name]
                for tokens, words in in_parts(told):
                    yield of.told(tokens, words)[name]

            return Batches(made)

        return {name: column(name) for name in COLUMNS}


def prompt_words(request: Request) -> Words:
    """What was told of a request's prompt."""
    return words_from(request.prompt_logprobs, words_of(request.sampling.prompt_logprobs))


def prompt_logprobs(texts: TokenTexts, request: Request) -> Batches:
    """In vLLM's form: of each token but the first, by token ids."""

    def made() -> Iterator[list[dict[str, Entry] | None]]:
        yield [None]
        for tokens, words in in_parts([(request.prompt[1:].tolist(), prompt_words(request)[1:])]):
            yield [_of_prompt_token(texts, *one) for one in zip(tokens, numbers(words), strict=True)]

    return Batches(made)


def _of_prompt_token(
    texts: TokenTexts, token: int, known: tuple[int, float, list[tuple[int, float]]]
) -> dict[str, Entry]:
    rank, own, likeliest = known
    ranked = [(token, own, rank), *((*likely, place) for place, likely in enumerate(likeliest, 1))]
    return {
        str(other): {"logprob": logprob, "rank": place, "decoded_token": texts(other)}
        for other, logprob, place in ranked
    }
