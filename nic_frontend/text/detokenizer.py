"""Tokens to text, one at a time, with the semantics of `tokenizers`: Tokenizer.decode of the whole sequence
gives the same text.

Vocabularies of bytes, byte-level (GPT-2) or with bytes to fall back to (SentencePiece), need no window over
earlier tokens: each token is a string of bytes, and the text is the lossy UTF-8 decoding of their
concatenation. Added tokens are raw text, special tokens are skipped on request, and each maximal invalid
subpart becomes one U+FFFD (Unicode 16, section 3.9, "U+FFFD substitution of maximal subparts"). For bytes to
fall back to, tokenizers writes one for every byte of a run that is invalid anywhere, which no stream can.
"""

from __future__ import annotations

import codecs
import json
from typing import Protocol

from tokenizers import Tokenizer

from nic_frontend.text.panics import panics_as_errors
from ringbuffer.token_bytes import STRIP, TokenBytes, bytes_by_decoder

CONTEXT_TOKENS = 6  # of the prompt, for decoders whose text depends on what stands before
HELD_TOKENS = 4  # as many as a character has bytes: what is incomplete then remains so


class Detokenizer(Protocol):
    def feed(self, token: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        ...

    def flush(self) -> str:
        """The rest, at the end: incomplete characters as U+FFFD."""
        ...


class Bytewise:
    """`table[token]` is the token's bytes. `strip`: a space at the beginning is not shown."""

    def __init__(self, table: list[bytes], strip: bool = False) -> None:
        self._table = table
        self._strip = strip
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, token: int) -> str:
        text = self._decode(self._table[token])
        if self._strip and text:
            self._strip = False
            return text.removeprefix(" ")
        return text

    def flush(self) -> str:
        return self._decode(b"", True)


class Windowed:
    """Any other decoder: what the text of the last tokens has more than it had without the new one.

    `prompt` are the tokens before the answer, `silent` those that show nothing.
    """

    def __init__(self, tokenizer: Tokenizer, skip: bool, prompt: list[int], silent: set[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip
        self._silent = silent
        self._begin([token for token in prompt if token not in silent][-CONTEXT_TOKENS:])

    def _begin(self, window: list[int]) -> None:
        self._window = window
        self._n_shown = len(window)
        self._shown = len(self._text())

    def _text(self) -> str:
        with panics_as_errors():
            return str(self._tokenizer.decode(self._window, skip_special_tokens=self._skip))

    def feed(self, token: int) -> str:
        if token in self._silent:
            return ""
        self._window.append(token)
        text = self._text()
        held = len(self._window) - self._n_shown
        if len(text) <= self._shown or (text.endswith("\ufffd") and held < HELD_TOKENS):
            return ""
        piece = text[self._shown :]
        self._begin(self._window[-held:])
        return piece

    def flush(self) -> str:
        return self._text()[self._shown :]


def special_ids(tokenizer: Tokenizer) -> set[int]:
    return {token_id for token_id, added in tokenizer.get_added_tokens_decoder().items() if added.special}


def byte_tables(
    tokenizer: Tokenizer, vocab_size: int, token_bytes: TokenBytes
) -> tuple[list[bytes], list[bytes]]:
    """The bytes of each of `vocab_size` tokens: with special tokens, and with those empty.

    Ids without a token are empty.
    """
    special = special_ids(tokenizer)
    full = [token_bytes(tokenizer.id_to_token(token_id) or "") for token_id in range(vocab_size)]
    return full, [b"" if token_id in special else raw for token_id, raw in enumerate(full)]


NONE: frozenset[int] = frozenset()


class DetokenizerFactory(Protocol):
    def __call__(self, skip: bool, prompt: list[int], shown: frozenset[int] = NONE) -> Detokenizer:
        """`skip` special tokens, but for those that are `shown`. `prompt` are its last tokens."""
        ...


class Tables:
    """Which bytes each token has, with all special tokens, with some or with none."""

    def __init__(self, full: list[bytes], without_special: list[bytes]) -> None:
        self._full = full
        self._partial = {NONE: without_special}

    def choose(self, skip: bool, shown: frozenset[int]) -> list[bytes]:
        """A parser of answers has one set of tokens that it must see, so there are few of these tables."""
        if not skip:
            return self._full
        if shown not in self._partial:
            table = list(self._partial[NONE])
            for token in shown:
                table[token] = self._full[token]
            self._partial[shown] = table
        return self._partial[shown]


def detokenizer_factory(tokenizer: Tokenizer, vocab_size: int) -> DetokenizerFactory:
    decoder = json.loads(tokenizer.to_str())["decoder"]
    if token_bytes := bytes_by_decoder(decoder):
        tables = Tables(*byte_tables(tokenizer, vocab_size, token_bytes))
        strips = STRIP in decoder.get("decoders", ())

        def bytewise(skip: bool, prompt: list[int], shown: frozenset[int] = NONE) -> Bytewise:
            table = tables.choose(skip, shown)
            return Bytewise(table, strips and not any(table[token] for token in prompt))

        return bytewise
    special = special_ids(tokenizer)
    unknown = {token_id for token_id in range(vocab_size) if tokenizer.id_to_token(token_id) is None}
    silent_without_special = unknown | special

    def windowed(skip: bool, prompt: list[int], shown: frozenset[int] = NONE) -> Windowed:
        silent = silent_without_special if skip else unknown
        return Windowed(tokenizer, skip and not shown, prompt, silent - shown if shown else silent)

    return windowed
