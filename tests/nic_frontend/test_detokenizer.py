"""Incremental detokenization gives what tokenizers gives for the whole sequence, token by token, valid text
or not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import TOOL_CALL, VOCAB_SIZE, build_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from nic_frontend.detokenizer import (
    ByteLevel,
    Windowed,
    byte_level_alphabet,
    detokenizer_factory,
    is_byte_level,
)
from nic_frontend.generation import Generation
from nic_frontend.tokenizer import Tokenizer as FrontendTokenizer
from ringbuffer.abi import Reason

TINY = build_tokenizer()
TINY_FACTORY = detokenizer_factory(TINY, VOCAB_SIZE)
BYTES = {byte: TINY.get_vocab()[character] for character, byte in byte_level_alphabet().items()}


def with_byte_fallback() -> Tokenizer:
    """A SentencePiece-like tokenizer: words with U+2581 for the space, and bytes as <0xNN>."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    words += [
        "\u2581",
        "\u2581hello",
        "\u2581world",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "\u2581the",
        "!",
        "漢",
    ]
    vocab = {word: i for i, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return tokenizer


LLAMA = with_byte_fallback()
LLAMA_FACTORY = detokenizer_factory(LLAMA, LLAMA.get_vocab_size())


def decoded(
    factory: Callable[..., ByteLevel | Windowed], tokens: list[int], skip: bool
) -> tuple[str, list[str]]:
    stream = factory(skip, [])
    pieces = [stream.feed(token) for token in tokens]
    return "".join(pieces) + stream.flush(), pieces


@given(st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=60), st.booleans())
def test_any_tokens(tokens: list[int], skip: bool) -> None:
    text, _ = decoded(TINY_FACTORY, tokens, skip)
    assert text == TINY.decode(tokens, skip_special_tokens=skip)


@given(st.binary(max_size=60))
def test_any_bytes(raw: bytes) -> None:
    """Invalid UTF-8 of every kind: one U+FFFD per maximal subpart, as Rust's from_utf8_lossy writes it."""
    tokens = [BYTES[byte] for byte in raw]
    text, _ = decoded(TINY_FACTORY, tokens, True)
    assert text == TINY.decode(tokens) == raw.decode(errors="replace")


@given(st.text(max_size=40))
def test_any_text_piece_by_piece(text: str) -> None:
    tokens = [BYTES[byte] for byte in text.encode()]
    whole, pieces = decoded(TINY_FACTORY, tokens, True)
    assert whole == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text
    assert "".join(pieces) == text  # complete characters are not held back until the end


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\xf0\x9f\x98", "a\ufffd"),
        (b"\xf0\x9fa", "\ufffda"),
        (b"\xe6\xbc\xe6\xbc\xa2", "\ufffd漢"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"\xf4\x90\x80\x80", "\ufffd" * 4),
        (b"\xc0\xaf", "\ufffd\ufffd"),
    ],
)
def test_invalid_utf8(raw: bytes, expected: str) -> None:
    assert decoded(TINY_FACTORY, [BYTES[byte] for byte in raw], True)[0] == expected


def test_added_tokens_are_raw_text() -> None:
    token = TINY.token_to_id(TOOL_CALL)
    assert decoded(TINY_FACTORY, [token], True)[0] == TOOL_CALL
    half, rest = [BYTES[b] for b in "漢".encode()[:2]], [BYTES[b] for b in "漢".encode()[2:]]
    tokens = [*half, token, *rest]
    assert decoded(TINY_FACTORY, tokens, True)[0] == TINY.decode(tokens) == f"\ufffd{TOOL_CALL}\ufffd"


@given(st.lists(st.integers(0, LLAMA.get_vocab_size() - 1), max_size=30), st.booleans())
def test_other_decoders(tokens: list[int], skip: bool) -> None:
    assert isinstance(LLAMA_FACTORY(skip, []), Windowed)
    text, _ = decoded(LLAMA_FACTORY, tokens, skip)
    whole = LLAMA.decode(tokens, skip_special_tokens=skip)
    if "\ufffd" not in whole:  # DecodeStream holds back every U+FFFD, so it may group them another way
        assert text == whole


def test_other_decoders_continue_the_prompt() -> None:
    hello, world = LLAMA.token_to_id("\u2581hello"), LLAMA.token_to_id("\u2581world")
    stream = LLAMA_FACTORY(True, [hello])
    assert stream.feed(world) + stream.flush() == " world"


def test_which_decoders_are_byte_level() -> None:
    def of(decoder: object) -> bool:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.decoder = decoder
        return is_byte_level(json.loads(tokenizer.to_str())["decoder"])

    assert of(decoders.ByteLevel())
    assert of(decoders.Sequence([decoders.ByteLevel()]))
    assert not of(decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)]))
    assert not of(decoders.Metaspace())
    assert not is_byte_level(None)


def test_generation_without_stops_is_the_detokenizer(model_dir: Path) -> None:
    tokenizer = FrontendTokenizer(model_dir, VOCAB_SIZE)
    prompt = np.array([5], dtype=np.uint32)
    generation = Generation(tokenizer.detokenizer(skip_special_tokens=True, prompt=prompt))
    tokens = [BYTES[b] for b in "é漢".encode()[:-1]]
    shown = "".join(generation.feed(token) for token in tokens[:-1])
    shown += generation.finish(tokens[-1:], Reason.LENGTH)
    assert shown == "é\ufffd"
    assert generation.n_tokens == len(tokens)
