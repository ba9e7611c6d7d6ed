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
from known_work import cpu_s
from tiny_model import TOOL_CALL, VOCAB_SIZE, build_tokenizer
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from nic_frontend.text.detokenizer import (
    Bytewise,
    Windowed,
    byte_tables,
    detokenizer_factory,
)
from nic_frontend.text.generation import Generation
from nic_frontend.text.tokenizer import Tokenizer as FrontendTokenizer
from ringbuffer.abi import Reason
from ringbuffer.token_bytes import (
    SPECIAL,
    answer_bytes,
    byte_level_alphabet,
    bytes_by_decoder,
    has_bytes,
    is_byte_level,
)

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
    factory: Callable[..., Bytewise | Windowed], tokens: list[int], skip: bool
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


LLAMA_BYTE = LLAMA.token_to_id("<0x00>")
LLAMA_WORDS = [i for i in range(LLAMA.get_vocab_size()) if not LLAMA.id_to_token(i).startswith("<")]


def llama_text(tokens: list[int]) -> bytes:
    """What the tokens spell, special ones skipped."""
    words = [LLAMA.id_to_token(token) for token in tokens]
    spelled = [
        bytes([token - LLAMA_BYTE]) if word.startswith("<0x") else word.replace("\u2581", " ").encode()
        for token, word in zip(tokens, words, strict=True)
        if word not in ("<s>", "</s>")
    ]
    return b"".join(spelled)


@given(st.lists(st.integers(0, LLAMA.get_vocab_size() - 1), max_size=30))
def test_any_tokens_with_byte_fallback(tokens: list[int]) -> None:
    text, _ = decoded(LLAMA_FACTORY, tokens, True)
    assert text == llama_text(tokens).decode(errors="replace").removeprefix(" ")


@given(
    st.lists(st.sampled_from(LLAMA_WORDS) | st.characters(codec="utf-8"), max_size=20),
    st.characters(min_codepoint=0x80, codec="utf-8"),
    st.integers(0, 3),
)
def test_any_text_with_byte_fallback(parts: list[int | str], last: str, n_bytes: int) -> None:
    """Words and characters of bytes, then perhaps the first bytes of another."""
    whole = [[part] if isinstance(part, int) else llama_bytes(part) for part in parts]
    tokens = [token for part in whole for token in part]
    text, pieces = decoded(LLAMA_FACTORY, tokens, True)
    assert text == LLAMA.decode(tokens)
    assert text == "".join(pieces)  # complete characters are not held back until the end
    cut = llama_bytes(last)[:n_bytes]
    if 0 < len(cut) < len(last.encode()):
        assert decoded(LLAMA_FACTORY, tokens + cut, True)[0] == text + "\ufffd"


def llama_bytes(text: str) -> list[int]:
    return [LLAMA_BYTE + byte for byte in text.encode()]


def test_byte_fallback_continues_the_prompt() -> None:
    begin = LLAMA.token_to_id("<s>")
    hello, world = LLAMA.token_to_id("\u2581hello"), LLAMA.token_to_id("\u2581world")
    for prompt, expected in (([begin, hello], " world"), ([begin], "world")):
        stream = LLAMA_FACTORY(True, prompt)
        assert stream.feed(world) + stream.flush() == expected


def with_decoder(decoder: object, words: list[str]) -> Tokenizer:
    vocab = {word: i for i, word in enumerate(["<unk>", "<s>", *words])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[], unk_token="<unk>"))
    tokenizer.decoder = decoder
    tokenizer.add_special_tokens([AddedToken("<s>", special=True)])
    return tokenizer


OTHERS = [
    with_decoder(decoders.WordPiece(), ["do", "##ing", "n't", ".", ",", "it", "'", "s", "##s", "é"]),
    with_decoder(decoders.Metaspace(), ["\u2581", "\u2581hello", "a", "b", "\u2581\u2581", "é", "\ufffd"]),
    with_decoder(decoders.BPEDecoder(), ["hello</w>", "a", "b</w>", ".</w>"]),
]


@pytest.mark.parametrize("tokenizer", OTHERS, ids=["WordPiece", "Metaspace", "BPEDecoder"])
@given(tokens=st.lists(st.integers(0, 15), max_size=30), n_prompt=st.integers(0, 3), skip=st.booleans())
def test_other_decoders(tokenizer: Tokenizer, tokens: list[int], n_prompt: int, skip: bool) -> None:
    prompt = tokens[:n_prompt]
    stream = detokenizer_factory(tokenizer, 16)(skip, prompt)
    assert isinstance(stream, Windowed)
    text = "".join(stream.feed(token) for token in tokens[n_prompt:]) + stream.flush()
    before = tokenizer.decode(prompt, skip_special_tokens=skip)
    assert before + text == tokenizer.decode(tokens, skip_special_tokens=skip)


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


@pytest.mark.parametrize("tokenizer", [TINY, LLAMA, *OTHERS])
def test_the_backend_knows_the_same_bytes(tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Of ids that the tokenizer does not have, too; of special tokens with a byte in front that no text has.
    Of other vocabularies nothing.
    """
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    size = tokenizer.get_vocab_size() + 3
    table = answer_bytes(tmp_path, size)
    token_bytes = bytes_by_decoder(json.loads(tokenizer.to_str())["decoder"])
    assert (table is None) == (token_bytes is None) == (tokenizer in OTHERS) != has_bytes(tmp_path)
    if table is not None and token_bytes is not None:
        full, shown = byte_tables(tokenizer, size, token_bytes)
        assert table == [
            SPECIAL + raw if raw != visible else raw for raw, visible in zip(full, shown, strict=True)
        ]


def test_a_file_that_is_no_tokenizers_is_refused(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"decoder": {"type": "ByteLevel"}, "model": {"vocab": 3}}'):
        (tmp_path / "tokenizer.json").write_text(text)
        with pytest.raises(ValueError, match=r"tokenizer\.json is not"):
            answer_bytes(tmp_path, 8)
        with pytest.raises(ValueError, match=r"tokenizer\.json is not"):
            has_bytes(tmp_path)


def test_whether_a_vocabulary_has_bytes_is_told_without_its_tokens(tmp_path: Path) -> None:
    """The backend asks before it loads a model, and reads the tokens once, when it does."""
    vocabulary = {f"token{i}": i for i in range(60_000)}
    tokenizer = {"decoder": {"type": "ByteLevel"}, "model": {"vocab": vocabulary}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))

    def cost(work: Callable[[], object]) -> float:
        """Of five times the best: whoever shares a core's caches makes work longer, and none shorter."""
        return min(cpu_s(work) for _ in range(5))

    assert cost(lambda: has_bytes(tmp_path)) < 0.5 * cost(lambda: answer_bytes(tmp_path, 60_000))


def test_generation_without_stops_is_the_detokenizer(model_dir: Path) -> None:
    tokenizer = FrontendTokenizer(model_dir, VOCAB_SIZE)
    prompt = np.array([5], dtype=np.uint32)
    generation = Generation(tokenizer.detokenizer(skip_special_tokens=True, prompt=prompt))
    tokens = [BYTES[b] for b in "é漢".encode()[:-1]]
    shown = "".join(generation.feed(token) for token in tokens[:-1])
    shown += generation.finish(tokens[-1:], Reason.LENGTH)
    assert shown == "é\ufffd"
    assert generation.n_tokens == len(tokens)
