"""The tokens that end a model's turn, wherever its directory names them.

Published models name them in up to five places, and few name all of them in one: generation_config.json,
config.json, its `text_config` where the model takes images too, and the tokenizer's `eos_token`, which
tokenizer_config.json or special_tokens_map.json has. An answer ends with any of them: where the token that
a model ends its turns with is not among them, the model goes on with the other side's turn.

But config.json may have been left behind by the vocabulary, as with Llama 2's `</s>`, which is an ordinary
token of Llama 3's: where generation_config.json names ends, config.json adds no token that is ordinary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpu_backend.models.fields import UnsupportedModel
from ringbuffer.model_file import MAX_TOKENIZER_BYTES, ModelFileError, read_bytes, shown, whole
from ringbuffer.special_tokens import read_special_tokens

KEY = "eos_token_id"


@dataclass(frozen=True)
class TokenizerEnds:
    """What the tokenizer's files say of ends: the id of their `eos_token`, None where they name none, and the
    ids of the tokens that were `added` to the vocabulary, as all special ones are. Those are read when they
    are asked for; empty where tokenizer.json cannot tell."""

    eos_token: int | None = None
    added: Callable[[], frozenset[int]] = frozenset


def ends_of_turns(
    vocab_size: int,
    config: Mapping[str, Any],
    generation: Mapping[str, Any],
    tokenizer: TokenizerEnds,
    notice: Callable[[str], None] = lambda text: None,
) -> tuple[int, ...]:
    """The ids by the contents of config.json and generation_config.json, and by the tokenizer. `notice` is
    told of those of config.json that are ordinary tokens.

    An id outside the vocabulary is left out: no model can generate it. Raises UnsupportedModel.
    """

    def known(ids: list[int]) -> list[int]:
        return [token for token in ids if 0 <= token < vocab_size]

    text_config = config.get("text_config")
    ids, others = known(_ids("generation_config.json", generation)), _ids("config.json", config)
    if isinstance(text_config, dict):
        others += _ids("config.json: text_config", text_config)
    others = known(others)
    named = {*ids, tokenizer.eos_token}
    if ids and not named.issuperset(others) and (added := tokenizer.added()):
        ordinary = [token for token in dict.fromkeys(others) if token not in named | added]
        if ordinary:
            notice(
                f"warning: config.json: {KEY}: {shown(ordinary)} left out: generation_config.json names "
                "others, and by tokenizer.json this is no special token but one that answers are made of"
            )
        others = [token for token in others if token not in ordinary]
    ids += others
    if tokenizer.eos_token is not None:
        ids += known([tokenizer.eos_token])
    return tuple(dict.fromkeys(ids))


def _ids(where: str, content: Mapping[str, Any]) -> list[int]:
    value = content.get(KEY)
    if value is None:
        return []
    ids = [whole(token) for token in (value if isinstance(value, list) else [value])]
    found = [token for token in ids if token is not None]
    if len(found) < len(ids):
        raise UnsupportedModel(
            f"{where}: {KEY}: expected an integer or a list of integers, found {shown(value)}"
        )
    return found


class _Added(msgspec.Struct):
    id: int
    content: str


class _AddedTokens(msgspec.Struct):
    added_tokens: list[_Added] | None = None


class _Model(msgspec.Struct):
    vocab: msgspec.Raw = msgspec.Raw(b"{}")


class _File(msgspec.Struct):
    """What of a tokenizer.json tells the id of a token. The vocabulary is most of the file: it is read only
    where the token is not among those that were added to it."""

    model: _Model
    added_tokens: list[_Added] | None = None


def read_tokenizer_ends(directory: Path) -> TokenizerEnds:
    """What the tokenizer's files in `directory` say. Without tokenizer.json, and where it has not the token
    that the others call `eos_token`, there is none. It and `added` raise UnsupportedModel."""
    path = directory / "tokenizer.json"

    def added() -> frozenset[int]:
        with _refused(path):
            content = read_bytes(path, MAX_TOKENIZER_BYTES) if path.exists() else b"{}"
            tokens = msgspec.json.decode(content, type=_AddedTokens).added_tokens
            return frozenset(token.id for token in tokens or ())

    with _refused(path):
        text = read_special_tokens(directory).get("eos_token")
        if text is None or not path.exists():
            return TokenizerEnds(None, added)
        return TokenizerEnds(_token_id(read_bytes(path, MAX_TOKENIZER_BYTES), text), added)


@contextmanager
def _refused(path: Path) -> Iterator[None]:
    """What is wrong with the tokenizer's files is raised as UnsupportedModel."""
    try:
        yield
    except ModelFileError as error:
        raise UnsupportedModel(str(error)) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise UnsupportedModel(f"{path} is not what a tokenizer's file is: {shown(str(error))}") from None


def _token_id(tokenizer: bytes, text: str) -> int | None:
    file = msgspec.json.decode(tokenizer, type=_File)
    for token in file.added_tokens or ():
        if token.content == text:
            return token.id
    vocabulary = msgspec.json.decode(file.model.vocab, type=dict[str, int] | list[tuple[str, float]])
    if isinstance(vocabulary, dict):
        return vocabulary.get(text)
    return next((token for token, (name, _) in enumerate(vocabulary) if name == text), None)
