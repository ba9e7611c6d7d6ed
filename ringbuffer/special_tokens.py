"""The special tokens that a model directory names: what opens and closes its texts.

Two files name them: tokenizer_config.json and, of models that were written before transformers 5,
special_tokens_map.json. Where both name one, transformers takes what the map says, unless
tokenizer_config.json has an `added_tokens_decoder`, as later versions 4 wrote it. Whatever only one file
names counts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ringbuffer.model_file import ModelFileError, read_json, shown

TOKENIZER_CONFIG = "tokenizer_config.json"
SPECIAL_TOKENS_MAP = "special_tokens_map.json"
NAMES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


def read_special_tokens(directory: Path) -> dict[str, str]:
    """The text of each special token that has a name, by the name; empty where neither file is there.

    A name that is missing, null or empty in both files is left out. Raises ModelFileError.
    """
    config, token_map = (_read(directory / name) for name in (TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP))
    named = [_texts(directory / TOKENIZER_CONFIG, config), _texts(directory / SPECIAL_TOKENS_MAP, token_map)]
    winner, other = named if "added_tokens_decoder" in config else reversed(named)
    return {name: text for name in NAMES if (text := winner.get(name) or other.get(name))}


def _read(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _texts(path: Path, content: dict[str, Any]) -> dict[str, str]:
    return {name: _text(path, name, content[name]) for name in NAMES if content.get(name) is not None}


def _text(path: Path, name: str, token: Any) -> str:
    """A token is a string, or an object that has it as `content` beside how it is cut out of texts."""
    text = token.get("content") if isinstance(token, dict) else token
    if not isinstance(text, str):
        raise ModelFileError(
            f"{path}: {name} must be a string, or an object whose content is one, found {shown(token)}"
        )
    return text
