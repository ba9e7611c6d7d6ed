"""Tokens to text, one at a time, with the semantics of `tokenizers`: Tokenizer.decode of the whole sequence
gives the same text.

Byte-level vocabularies need no window over earlier tokens: each token is a string of bytes, and the text is
the lossy UTF-8 decoding of their concatenation. Added tokens are raw text, special tokens are skipped on
request, and each maximal invalid subpart becomes one U+FFFD (Unicode 16, section 3.9, "U+FFFD substitution of
maximal subparts"). Other decoders go through tokenizers' DecodeStream.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable
from typing import Any, Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

CONTEXT_TOKENS = 6  # of the prompt, for decoders whose text depends on what stands before


class Detokenizer(Protocol):
    def feed(self, token: int) -> str:
        """The text that this token completes; empty while a character is incomplete."""
        ...

    def flush(self) -> str:
        """The rest, at the end: incomplete characters as U+FFFD."""
        ...


class ByteLevel:
    """`table[token]` is the token's bytes."""

    def __init__(self, table: list[bytes]) -> None:
        self._table = table
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def feed(self, token: int) -> str:
        return self._decode(self._table[token])

    def flush(self) -> str:
        return self._decode(b"", True)


class Windowed:
    """Any decoder, through tokenizers' DecodeStream; `prompt` are the tokens before the answer."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, prompt: list[int]) -> None:
        self._tokenizer = tokenizer
        self._skip = skip_special_tokens
        self._context = prompt[-CONTEXT_TOKENS:]
        self._ids = list(self._context)
        self._emitted = len(tokenizer.decode(self._context, skip_special_tokens=skip_special_tokens))
        self._stream = DecodeStream(self._context, skip_special_tokens=skip_special_tokens)

    def feed(self, token: int) -> str:
        self._ids.append(token)
        try:
            text = self._stream.step(self._tokenizer, token) or ""
        except (
            Exception
        ):  # DecodeStream refuses text that does not extend what it has emitted; `flush` catches up
            self._stream = DecodeStream([], skip_special_tokens=self._skip)
            text = ""
        self._emitted += len(text)
        return text

    def flush(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=self._skip))[self._emitted :]


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's map from the characters of a byte-level vocabulary to bytes: printable Latin-1 stands for
    itself, the rest from U+0100.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(0x100 + i): byte for i, byte in enumerate(moved)}


def byte_tables(tokenizer: Tokenizer, vocab_size: int) -> tuple[list[bytes], list[bytes]]:
    """The bytes of each of `vocab_size` tokens: with special tokens, and with those empty.

    Ids without a token are empty.
    """
    alphabet = byte_level_alphabet()
    special = {token_id for token_id, added in tokenizer.get_added_tokens_decoder().items() if added.special}

    def token_bytes(token_id: int) -> bytes:
        text = tokenizer.id_to_token(token_id)
        if text is None:
            return b""
        try:
            return bytes(alphabet[character] for character in text)
        except KeyError:
            return text.encode()

    full = [token_bytes(token_id) for token_id in range(vocab_size)]
    return full, [b"" if token_id in special else raw for token_id, raw in enumerate(full)]


def is_byte_level(decoder: dict[str, Any] | None) -> bool:
    """Whether the `decoder` of a tokenizer.json is ByteLevel and nothing else."""
    if decoder is None:
        return False
    if decoder["type"] == "Sequence":
        return len(decoder["decoders"]) == 1 and is_byte_level(decoder["decoders"][0])
    return bool(decoder["type"] == "ByteLevel")


DetokenizerFactory = Callable[[bool, list[int]], Detokenizer]  # skip_special_tokens, the prompt's tokens


def detokenizer_factory(tokenizer: Tokenizer, vocab_size: int) -> DetokenizerFactory:
    if not is_byte_level(json.loads(tokenizer.to_str())["decoder"]):
        return lambda skip, prompt: Windowed(tokenizer, skip, prompt)
    full, without_special = byte_tables(tokenizer, vocab_size)
    return lambda skip, prompt: ByteLevel(without_special if skip else full)
