"""Text to tokens. fastokens was seen to be 6 to 20 times as fast as `tokenizers`; it is used where it proves
itself equal at load.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import tokenizers
from numpy.typing import NDArray

from nic_frontend.errors import ApiError, bad_request, unavailable
from nic_frontend.text.detokenizer import NONE, Detokenizer, detokenizer_factory, special_ids
from nic_frontend.text.panics import panics_as_errors
from nic_frontend.text.text_thread import TextThread
from ringbuffer.model_file import MAX_TOKENIZER_BYTES, one_line, read_bytes, shown
from ringbuffer.token_bytes import bytes_by_decoder

log = logging.getLogger(__name__)

# Characters to tokenize, or tokens to decode; more are a thread's work, so as not to delay other streams.
LONG_TEXT = 32768
THREAD_S = 60.0  # for the texts before one in that thread, and for itself: 8 MiB take some seconds
MAX_TOKENS = 1 << 20  # in a vocabulary, with what was added

T = TypeVar("T")
Encoder = Callable[[str, bool], NDArray[np.uint32]]  # text, add_special_tokens

HARD_STRINGS = (
    "",
    " ",
    "Hello, world!",
    "  two  spaces\tand\ttabs\n\n\nand newlines \r\n \r",
    "I'm you're he'd WE'LL it's IT'S they've don't it'\u017f 'tis ''''",
    "1234567890 12 123 1,234.56 \u00bd \u2167 \u0662\u0663",
    "naïve café Ångström e\u0301 n\u0303 \u1e9b\u0323 \ufb01ne \u212b",
    "漢字かな交じり文 한국어 조합형 ภาษาไทย हिन्दी العربية עברית",
    "😀👩\u200d👩\u200d👧\u200d👦🏳\ufe0f\u200d🌈 👍🏽 \U0001f1e9\U0001f1ea",
    "\u0085\u00a0\u2003\u3000\u200b\ufeff\u2028\u2029 x\u00a0y",
    "def f(x):\n    return {k: v for k, v in x.items() if k != '__doc__'}  # comment\n",
    "https://example.com/a?b=c&d=%20#e <html attr='1'>&amp;</html> \\u0041 C:\\dir",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!??!?!... --- ===== ~~~ ((([[[{{{ $$$ #### @@@ *** ///",
    "\x00\x01\x07\x1b[0m\x7f \U0010ffff \ufffd \ue000",
)


def random_strings(count: int) -> list[str]:
    """Reproducible strings over many scripts, spaces, digits, marks and controls, up to 40 characters."""
    source = random.Random(20)
    ranges = [(0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x900, 0x97F)]
    ranges += [
        (0x1E00, 0x22FF),
        (0x3040, 0x30FF),
        (0x4E00, 0x9FFF),
        (0xAC00, 0xD7A3),
        (0x1F300, 0x1FAFF),
        (0x9, 0xD),
    ]

    def one() -> str:
        spans = source.choices(ranges, k=source.randint(1, 40))
        return "".join(chr(source.randint(*span)) for span in spans)

    return [one() for _ in range(count)]


def _reference_encoder(reference: tokenizers.Tokenizer) -> Encoder:
    def encode(text: str, special: bool) -> NDArray[np.uint32]:
        if len(text) <= LONG_TEXT:
            return _array(reference.encode(text, add_special_tokens=special).ids)
        (found,) = reference.encode_batch_fast([text], add_special_tokens=special)  # releases Python's lock
        return _array(found.ids)

    return encode


def _fast_encoder(path: Path, reference: Encoder, added: list[str]) -> Encoder:
    """fastokens, checked against the reference.

    Raises ValueError with the first difference, or whatever fastokens raises.
    """
    import fastokens  # type: ignore[import-untyped]

    fast = fastokens.Tokenizer.from_file(str(path))
    fast.no_padding()
    fast.no_truncation()

    def encode(text: str, special: bool) -> NDArray[np.uint32]:
        """Python's lock is released meanwhile, and no object is made for each token: a text of 8 MiB may
        have as many tokens.
        """
        ids, _ = fast.encode_batch_flat([text], add_special_tokens=special)
        return np.frombuffer(ids, np.uint32)

    mixed = [f"{token}a{token}{token} b {token}" for token in added[:32]]
    everything = [*HARD_STRINGS, *random_strings(400), *mixed, " ".join(HARD_STRINGS)]
    for text in everything:
        for special in (False, True):
            if not np.array_equal(encode(text, special), reference(text, special)):
                raise ValueError(f"it differs from tokenizers on {text[:60]!r}")
    return encode


def _array(tokens: list[int]) -> NDArray[np.uint32]:
    """In parts, because Python's lock is held for each."""
    found = np.empty(len(tokens), np.uint32)
    for start in range(0, len(tokens), LONG_TEXT):
        found[start : start + LONG_TEXT] = tokens[start : start + LONG_TEXT]
    return found


class _Added(msgspec.Struct):
    id: int


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = []


class _File(msgspec.Struct):
    """What of a tokenizer.json tells its ids."""

    model: _Model
    added_tokens: list[_Added] | None = None


def _largest_id(content: bytes) -> int:
    """Of a tokenizer.json. Tables are made as long as it is, so it has a bound. Raises ValueError."""
    try:
        found = msgspec.json.decode(content, type=_File)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"{error}") from error
    vocab = found.model.vocab
    ids = [added.id for added in found.added_tokens or ()]
    ids += vocab.values() if isinstance(vocab, dict) else range(len(vocab))
    largest = max(ids, default=0)
    if min(ids, default=0) < 0 or largest >= MAX_TOKENS:
        raise ValueError(f"it has a token with the id {shown(largest)}; ids are below {MAX_TOKENS}")
    return largest


class Tokenizer:
    """The tokenizer and the detokenizer of a model directory.

    Raises FileNotFoundError without tokenizer.json, and ValueError when that cannot be used.
    """

    def __init__(self, directory: Path, vocab_size: int) -> None:
        path = directory / "tokenizer.json"
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: the frontend needs the model's tokenizer.json")
        try:
            most = max(vocab_size, _largest_id(read_bytes(path, MAX_TOKENIZER_BYTES)) + 1)
            with panics_as_errors():
                self._reference = tokenizers.Tokenizer.from_file(str(path))
                self._reference.no_padding()
                self._reference.no_truncation()
                self._factory = detokenizer_factory(self._reference, most)
                self.special = frozenset(special_ids(self._reference))
                texts = (self._reference.id_to_token(token) for token in self.special)
                self.special_texts = sorted(text for text in texts if text)
                decoder = self._reference.decoder
                self._token_bytes = bytes_by_decoder(json.loads(decoder.__getstate__()) if decoder else None)
                self._encode, self.engine = self._choose(path)
        except Exception as error:  # tokenizers raises plain Exception
            raise ValueError(
                f"cannot use the tokenizer files in {directory}: {one_line(str(error))}"
            ) from error
        self._thread = TextThread()

    def _choose(self, path: Path) -> tuple[Encoder, str]:
        reference = _reference_encoder(self._reference)
        added = [token.content for token in self._reference.get_added_tokens_decoder().values()]
        try:
            with panics_as_errors():
                return _fast_encoder(path, reference, added), "fastokens"
        except Exception as error:  # a fallback that works, whatever is wrong with the fast path
            log.warning("tokenizing with tokenizers, which is slower than fastokens: %s", error)
            return reference, "tokenizers"

    async def encode(self, texts: list[str], *, special: bool, param: str) -> list[NDArray[np.uint32]]:
        """The tokens of each text, with the model's begin and end tokens if `special`.

        Raises ApiError 400 naming `param`.
        """

        def encode() -> list[NDArray[np.uint32]]:
            return [self._encode(text, special) for text in texts]

        try:
            return await self._beside_streams(encode, sum(map(len, texts)))
        except ApiError:
            raise
        except UnicodeEncodeError as error:
            raise bad_request(f"'{param}' has a lone surrogate, which no Unicode text has", param) from error
        except Exception as error:  # its regular expressions may be such that they give a text up
            raise bad_request(
                f"the model's tokenizer fails at '{param}': {str(error)[:500]}", param
            ) from error

    async def decode(self, prompts: list[list[int]]) -> list[str]:
        """The text of each, special tokens included."""

        def decode() -> list[str]:  # as a batch, which releases Python's lock
            return list(self._reference.decode_batch(prompts, skip_special_tokens=False))

        try:
            return await self._beside_streams(decode, sum(map(len, prompts)))
        except ApiError:
            raise
        except Exception as error:
            raise bad_request(f"the model's tokenizer fails at these tokens: {str(error)[:500]}") from error

    def encode_now(self, text: str) -> list[int]:
        """Raises Panicked, and whatever else the tokenizer does."""
        with panics_as_errors():
            tokens: list[int] = self._encode(text, False).tolist()
            return tokens

    def decode_now(self, tokens: list[int]) -> str:
        with panics_as_errors():
            return str(self._reference.decode(tokens, skip_special_tokens=False))

    def bytes_of(self, token: int) -> bytes:
        """What the token adds to a text, as a special token, too."""
        if self._token_bytes is None:
            return str(self._reference.decode([token], skip_special_tokens=False)).encode()
        return self._token_bytes(self._reference.id_to_token(token) or "")

    def strings(self, tokens: list[int]) -> list[str]:
        """Each token as the vocabulary writes it."""
        return [self._reference.id_to_token(token) or "" for token in tokens]

    async def _beside_streams(self, work: Callable[[], T], length: int) -> T:
        """What `work` returns; in a thread where `length` is more than LONG_TEXT.

        Raises ApiError 503 when that takes too long: a tokenizer may be such that it never ends.
        """

        def guarded() -> T:
            with panics_as_errors():
                return work()

        if length <= LONG_TEXT:
            return guarded()
        try:
            async with asyncio.timeout(THREAD_S):
                return await self._thread.run(guarded)
        except TimeoutError:
            raise unavailable(f"the tokenizer has been busy with long texts for {THREAD_S:g} s") from None

    async def stuck(self) -> str:
        """Returns the reason when no long text will be served any more."""
        await self._thread.stuck(THREAD_S)
        return f"the tokenizer has been at one request's texts for {THREAD_S:g} s, and may never end"

    def special_ids(self, texts: tuple[str, ...]) -> frozenset[int]:
        """Those of the texts that are special tokens."""
        special = special_ids(self._reference)
        return frozenset(
            token
            for text in texts
            if (token := self._reference.token_to_id(text)) is not None and token in special
        )

    def detokenizer(
        self, *, skip_special_tokens: bool, prompt: NDArray[np.uint32], shown: frozenset[int] = NONE
    ) -> Detokenizer:
        """`shown` are special tokens that are not skipped."""
        return self._factory(skip_special_tokens, prompt[-16:].tolist(), shown)
