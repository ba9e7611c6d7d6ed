"""The bytes of a vocabulary's tokens, as both planes know them: the frontend makes text of them, and the
backend walks grammars with them.

Vocabularies of bytes are byte-level (GPT-2) or have bytes to fall back to (SentencePiece).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from ringbuffer.model_file import MAX_TOKENIZER_BYTES, parse_json, read_bytes

TokenBytes = Callable[[str], bytes]

# Before the text of a special token, where grammars are walked: a byte that no text has. So a special token
# comes only where a grammar asks for it.
SPECIAL = b"\xff"


def byte_level_alphabet() -> dict[str, int]:
    """GPT-2's map from the characters of a byte-level vocabulary to bytes: printable Latin-1 stands for
    itself, the rest from U+0100.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(0x100 + i): byte for i, byte in enumerate(moved)}


def byte_level_bytes() -> TokenBytes:
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


def bytes_by_decoder(decoder: dict[str, Any] | None) -> TokenBytes | None:
    """How the bytes of a token are found; None: it is no vocabulary of bytes."""
    if is_byte_level(decoder):
        return byte_level_bytes()
    return fallback_bytes if is_byte_fallback(decoder) else None


class _Model(msgspec.Struct):
    vocab: msgspec.Raw


class _File(msgspec.Struct):
    """What of a tokenizer.json tells how its tokens are written."""

    model: _Model
    decoder: dict[str, Any] | None = None


def has_bytes(directory: Path) -> bool:
    """Whether `answer_bytes` finds any. It does not look at the tokens, and costs a tenth as much.

    Raises FileNotFoundError, and ValueError where the file is no tokenizer's.
    """
    path = directory / "tokenizer.json"
    try:
        found = msgspec.json.decode(read_bytes(path, MAX_TOKENIZER_BYTES), type=_File)
        if bytes(memoryview(found.model.vocab)[:1]) not in (b"{", b"["):
            raise TypeError("its vocabulary is neither an object nor a list")
        return bytes_by_decoder(found.decoder) is not None
    except (KeyError, TypeError, AttributeError, msgspec.DecodeError, RecursionError) as error:
        raise _no_tokenizer(path, error) from error


def answer_bytes(directory: Path, vocab_size: int) -> list[bytes] | None:
    """What each token adds to the text of an answer; for special tokens SPECIAL and theirs, and nothing for
    ids without a token.

    None where the tokenizer in `directory` has no vocabulary of bytes. Raises FileNotFoundError, and
    ValueError where the file is no tokenizer's.
    """
    path = directory / "tokenizer.json"
    try:
        tokenizer = parse_json(read_bytes(path, MAX_TOKENIZER_BYTES))
        token_bytes = bytes_by_decoder(tokenizer.get("decoder"))
        vocabulary = tokenizer["model"]["vocab"]
        added = tokenizer.get("added_tokens") or []
        if token_bytes is None:
            return None
        names = vocabulary.items() if isinstance(vocabulary, dict) else enumerate_names(vocabulary)
        table = [b""] * vocab_size
        for name, token in [*names, *((token["content"], token["id"]) for token in added)]:
            if 0 <= token < vocab_size:
                table[token] = token_bytes(name)
        for token in added:
            if token["special"] and 0 <= token["id"] < vocab_size:
                table[token["id"]] = SPECIAL + token["content"].encode()
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _no_tokenizer(path, error) from error
    return table


def _no_tokenizer(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} is not what a tokenizer's file is: {error!r}")


def enumerate_names(vocabulary: list[list[Any]]) -> list[tuple[str, int]]:
    """Of a Unigram model, whose vocabulary is a list of names and scores."""
    return [(name, token) for token, (name, _) in enumerate(vocabulary)]
