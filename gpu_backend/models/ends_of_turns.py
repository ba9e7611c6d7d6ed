"""The tokens that end a model's turn, wherever its directory names them.

Published models name them in up to five places, and few name all of them in one: generation_config.json,
config.json, its `text_config` where the model takes images too, and the tokenizer's `eos_token`, which
tokenizer_config.json or special_tokens_map.json has. An answer ends with any of them: where the token that
a model ends its turns with is not among them, the model goes on with the other side's turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpu_backend.models.fields import UnsupportedModel
from ringbuffer.model_file import MAX_TOKENIZER_BYTES, ModelFileError, read_bytes, shown, whole
from ringbuffer.special_tokens import read_special_tokens

KEY = "eos_token_id"


def ends_of_turns(
    vocab_size: int, config: Mapping[str, Any], generation: Mapping[str, Any], eos_token: int | None = None
) -> tuple[int, ...]:
    """The ids by the contents of config.json and generation_config.json, and `eos_token`, the tokenizer's.

    An id outside the vocabulary is left out: no model can generate it. Raises UnsupportedModel.
    """
    text_config = config.get("text_config")
    ids = _ids("generation_config.json", generation) + _ids("config.json", config)
    if isinstance(text_config, dict):
        ids += _ids("config.json: text_config", text_config)
    if eos_token is not None:
        ids.append(eos_token)
    return tuple(dict.fromkeys(token for token in ids if 0 <= token < vocab_size))


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


class _Model(msgspec.Struct):
    vocab: msgspec.Raw = msgspec.Raw(b"{}")


class _File(msgspec.Struct):
    """What of a tokenizer.json tells the id of a token. The vocabulary is most of the file: it is read only
    where the token is not among those that were added to it."""

    model: _Model
    added_tokens: list[_Added] | None = None


def read_eos_token(directory: Path) -> int | None:
    """The id of the token that the tokenizer's files call `eos_token`.

    None where they name none, or one that tokenizer.json does not have. Raises UnsupportedModel.
    """
    path = directory / "tokenizer.json"
    try:
        text = read_special_tokens(directory).get("eos_token")
        if text is None or not path.exists():
            return None
        return _token_id(read_bytes(path, MAX_TOKENIZER_BYTES), text)
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
