"""Special tokens are found in both files that name them, in both forms, and the right file wins."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import transformers

from ringbuffer.model_file import ModelFileError
from ringbuffer.special_tokens import read_special_tokens

OBJECT = {"content": "</s>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
DECODER: dict[str, Any] = {"added_tokens_decoder": {}}  # what newer files have


def write(directory: Path, config: dict[str, Any] | None, token_map: dict[str, Any] | None = None) -> Path:
    for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", token_map)):
        if content is not None:
            (directory / name).write_text(json.dumps(content))
    return directory


def test_a_directory_without_either_file_names_none(tmp_path: Path) -> None:
    assert read_special_tokens(tmp_path) == {}


@pytest.mark.parametrize("token", ["</s>", OBJECT, {**OBJECT, "__type": "AddedToken"}])
@pytest.mark.parametrize("in_map", [False, True])
def test_a_token_is_a_string_or_an_object_in_either_file(tmp_path: Path, token: Any, in_map: bool) -> None:
    named, other = {"eos_token": token}, {"bos_token": None, "pad_token": ""}
    write(tmp_path, other if in_map else named, named if in_map else other)
    assert read_special_tokens(tmp_path) == {"eos_token": "</s>"}


def test_all_names_are_read_and_nothing_else(tmp_path: Path) -> None:
    names = [f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")]
    write(
        tmp_path, {name: f"<{name}>" for name in [*names, "image_token"]}, {"additional_special_tokens": []}
    )
    assert read_special_tokens(tmp_path) == {name: f"<{name}>" for name in names}


@pytest.mark.parametrize("newer", [False, True])
def test_the_file_wins_that_wins_in_transformers(tmp_path: Path, newer: bool) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<config>": 0, "<map>": 1, "<s>": 2}, "<s>"))
    words.save(str(tmp_path / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<config>", "bos_token": "<s>"}
    write(tmp_path, config | (DECODER if newer else {}), {"eos_token": "<map>"})
    expected = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert read_special_tokens(tmp_path) == {"eos_token": expected.eos_token, "bos_token": expected.bos_token}
    assert expected.eos_token == ("<config>" if newer else "<map>")


def test_the_map_adds_what_a_newer_tokenizer_config_leaves_out(tmp_path: Path) -> None:
    write(
        tmp_path, DECODER | {"eos_token": None, "bos_token": "<s>"}, {"eos_token": "</s>", "bos_token": "x"}
    )
    assert read_special_tokens(tmp_path) == {"bos_token": "<s>", "eos_token": "</s>"}


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("token", [5, True, ["</s>"], {"content": 7}, {}])
def test_what_is_no_token_is_refused_by_file_and_name(tmp_path: Path, name: str, token: Any) -> None:
    (tmp_path / name).write_text(json.dumps({"eos_token": token}))
    with pytest.raises(ModelFileError, match=rf"{name}: eos_token must be a string, or an object"):
        read_special_tokens(tmp_path)
