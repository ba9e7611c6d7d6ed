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
import re
from collections.abc import Callable
from typing import Any, Protocol

from tokenizers import Tokenizer

from nic_frontend.panics import panics_as_errors

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


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's map from the characters of a byte-level vocabulary to bytes: printable Latin-1 stands for
    itself, the rest from U+0100.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(0x100 + i): byte for i, byte in enumerate(moved)}


def byte_level_bytes() -> Callable[[str], bytes]:
    """The bytes of a token of a byte-level vocabulary."""
    alphabet = byte_level_alphabet()

    def token_bytes(text: str) -> bytes:
        try:
            return bytes(alphabet[character] for character in text)
        except KeyError:  # an added token
            return text.encode()

    return token_bytes


def fallback_bytes(text: str) -> bytes:
    """The bytes of a token of a vocabulary with <0xNN> for bytes and U+2581 for the space."""
    if re.fullmatch("<0x[0-9A-Fa-f]{2}>", text):
        return bytes.fromhex(text[3:5])
    return text.replace("\u2581", " ").encode()


def special_ids(tokenizer: Tokenizer) -> set[int]:
    return {token_id for token_id, added in tokenizer.get_added_tokens_decoder().items() if added.special}


def byte_tables(
    tokenizer: Tokenizer, vocab_size: int, token_bytes: Callable[[str], bytes]
) -> tuple[list[bytes], list[bytes]]:
    """The bytes of each of `vocab_size` tokens: with special tokens, and with those empty.

    Ids without a token are empty.
    """
    special = special_ids(tokenizer)
    full = [token_bytes(tokenizer.id_to_token(token_id) or "") for token_id in range(vocab_size)]
    return full, [b"" if token_id in special else raw for token_id, raw in enumerate(full)]


def is_byte_level(decoder: dict[str, Any] | None) -> bool:
    """Whether the `decoder` of a tokenizer.json is ByteLevel and nothing else."""
    if decoder is None:
        return False
    if decoder["type"] == "Sequence":
        return len(decoder["decoders"]) == 1 and is_byte_level(decoder["decoders"][0])
    return bool(decoder["type"] == "ByteLevel")


FALLBACK: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def is_byte_fallback(decoder: dict[str, Any] | None) -> bool:
    """Whether the `decoder` of a tokenizer.json is that of Llama 2 and Mistral, which strips, or of Gemma."""
    return (decoder or {}).get("decoders") in (FALLBACK, [*FALLBACK, STRIP])


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
    if is_byte_level(decoder):
        of_bytes = Tables(*byte_tables(tokenizer, vocab_size, byte_level_bytes()))

        def byte_level(skip: bool, prompt: list[int], shown: frozenset[int] = NONE) -> Bytewise:
            return Bytewise(of_bytes.choose(skip, shown))

        return byte_level
    if is_byte_fallback(decoder):
        tables = Tables(*byte_tables(tokenizer, vocab_size, fallback_bytes))
        strips = STRIP in decoder["decoders"]

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
