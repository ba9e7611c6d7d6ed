"""An answer ends with every token that a model's files name as an end, wherever they do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from model_factory import LLAMA

from gpu_backend.models.ends_of_turns import TokenizerEnds
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.registry import describe, read_model

VOCAB = {"a": 0, "</s>": 2}
ADDED = [{"id": 7, "content": "<|end|>", "special": True}]


def tokenizer(vocab: Any = VOCAB, added: Any = ADDED) -> dict[str, Any]:
    return {"added_tokens": added, "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def ends(directory: Path, **files: Any) -> tuple[int, ...]:
    """Of a model with these files: by their names without .json."""
    for name, content in {"config": LLAMA, **files}.items():
        (directory / f"{name}.json").write_text(json.dumps(content))
    return read_model(directory).eos_ids


def without_end(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, "eos_token_id": None, **changes}


@pytest.mark.parametrize(
    ("generation", "expected"),
    [
        ({}, (2,)),
        ({"eos_token_id": None}, (2,)),
        ({"eos_token_id": 5}, (5, 2)),
        ({"eos_token_id": [7, 5, 2, 7]}, (7, 5, 2)),
        ({"eos_token_id": [7.0, 5]}, (7, 5, 2)),
    ],
)
def test_both_configurations_name_ends(
    tmp_path: Path, generation: dict[str, Any], expected: tuple[int, ...]
) -> None:
    assert ends(tmp_path, generation_config=generation) == expected


def test_config_alone_names_ends(tmp_path: Path) -> None:
    assert ends(tmp_path) == (2,)


@pytest.mark.parametrize(
    "token", ["<|end|>", {"content": "<|end|>", "lstrip": False, "__type": "AddedToken"}]
)
@pytest.mark.parametrize("file", ["tokenizer_config", "special_tokens_map"])
def test_the_tokenizer_names_an_end(tmp_path: Path, file: str, token: Any) -> None:
    """Then generation_config.json, which lists other ends, does not hide it."""
    files = {file: {"eos_token": token}, "generation_config": {"eos_token_id": 5}}
    assert ends(tmp_path, config=without_end(), tokenizer=tokenizer(), **files) == (5, 7)


@pytest.mark.parametrize(
    "vocab", [VOCAB, [["a", -1.0], ["b", 0], ["</s>", 0.0]]], ids=["by text", "as Unigram models have it"]
)
@pytest.mark.parametrize("added", [[], None])
def test_the_tokenizers_end_may_stand_in_its_vocabulary_alone(tmp_path: Path, vocab: Any, added: Any) -> None:
    config = {"eos_token": "</s>", "model_max_length": int(1e30)}
    files = {"tokenizer": tokenizer(vocab, added), "tokenizer_config": config}
    assert ends(tmp_path, config=without_end(), **files) == (2,)


def test_a_token_that_the_tokenizer_does_not_have_is_no_end(tmp_path: Path) -> None:
    files = {"tokenizer": tokenizer(), "tokenizer_config": {"eos_token": "<|im_end|>"}}
    assert ends(tmp_path, **files) == (2,)


def test_without_a_tokenizer_the_configurations_count(tmp_path: Path) -> None:
    assert ends(tmp_path, tokenizer_config={"eos_token": "<|end|>"}) == (2,)


STALE = {"model": {"type": "BPE", "vocab": {"#": 2}, "merges": []}}  # 2 was an end of another vocabulary


@pytest.mark.parametrize("config", [LLAMA, without_end(text_config={"eos_token_id": [2, 2]})])
def test_an_ordinary_token_is_no_end_where_generation_config_names_others(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    """It would cut answers, and is told in one line."""
    files = {"config": config, "generation_config": {"eos_token_id": [5, 7]}}
    assert ends(tmp_path, **files, tokenizer={**STALE, "added_tokens": ADDED}) == (5, 7)
    told: list[str] = []
    assert read_model(tmp_path, notice=told.append).eos_ids == (5, 7)
    (line,) = told
    assert line.startswith("warning: config.json: eos_token_id: [2] left out: generation_config.json names")
    assert "\n" not in line


@pytest.mark.parametrize(
    "tokenizer",
    [
        {**STALE, "added_tokens": [*ADDED, {"id": 2, "content": "</s>", "special": True}]},
        {**STALE, "added_tokens": [*ADDED, {"id": 2, "content": "<|end|>", "special": False}]},
        {**STALE, "added_tokens": []},
        {},
    ],
    ids=["special", "added", "none is added", "without a list"],
)
def test_config_names_further_ends_unless_the_tokenizer_knows_better(tmp_path: Path, tokenizer: Any) -> None:
    files = {"generation_config": {"eos_token_id": [5]}, "tokenizer": tokenizer}
    assert ends(tmp_path, **files) == (5, 2)
    told: list[str] = []
    read_model(tmp_path, notice=told.append)
    assert told == []


@pytest.mark.parametrize(
    "generation", [{}, {"eos_token_id": None}, {"eos_token_id": []}, {"eos_token_id": 512}]
)
def test_config_counts_where_generation_config_names_no_end(tmp_path: Path, generation: Any) -> None:
    files = {"generation_config": generation, "tokenizer": {**STALE, "added_tokens": ADDED}}
    assert ends(tmp_path, **files) == (2,)


def test_the_tokenizers_eos_token_is_an_end_though_it_was_not_added(tmp_path: Path) -> None:
    files = {"generation_config": {"eos_token_id": 5}, "tokenizer_config": {"eos_token": "</s>"}}
    assert ends(tmp_path, **files, tokenizer=tokenizer()) == (5, 2)


def test_a_tokenizer_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    files = {"generation_config": {"eos_token_id": 5}, "tokenizer": {"added_tokens": [{"id": "x"}]}}
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.json is not what a tokenizer's file is"):
        ends(tmp_path, **files)


def test_text_config_names_an_end() -> None:
    """As models that take images have it; some name the end of a turn outside alone, some inside."""
    assert describe(without_end(text_config={"eos_token_id": [1, 106]})).eos_ids == (1, 106)
    assert describe({**LLAMA, "text_config": {"eos_token_id": 106}}).eos_ids == (2, 106)
    assert describe({**LLAMA, "text_config": None}).eos_ids == (2,)


@pytest.mark.parametrize("outside", [512, -1, int(1e30), 1e30, -(10**400)])
def test_an_id_that_no_token_has_is_left_out(outside: float) -> None:
    assert describe({**LLAMA, "eos_token_id": [outside, 3]}, {"eos_token_id": outside}).eos_ids == (3,)
    assert describe(without_end(), tokenizer=TokenizerEnds(512)).eos_ids == ()


@pytest.mark.parametrize("value", [True, "</s>", [1, "</s>"], [[1]], 1.5, {"id": 1}, float("nan")])
def test_what_is_no_id_is_refused_with_the_files_name(value: Any) -> None:
    for where, files in (
        ("generation_config.json", (LLAMA, {"eos_token_id": value})),
        ("config.json", ({**LLAMA, "eos_token_id": value},)),
        ("config.json: text_config", ({**LLAMA, "text_config": {"eos_token_id": value}},)),
    ):
        with pytest.raises(UnsupportedModel, match=f"^{where}: eos_token_id: expected an integer or a list"):
            describe(*files)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tokenizer(added=[{"id": "7", "content": "<|end|>"}]), "tokenizer.json is not what a tokenizer's"),
        (tokenizer(vocab={"</s>": "x" * 10**6}), "tokenizer.json is not what a tokenizer's file is"),
        ({"added_tokens": ADDED}, "tokenizer.json is not what a tokenizer's file is"),
        ([], "tokenizer.json is not what a tokenizer's file is"),
    ],
)
def test_a_file_that_is_no_tokenizers_is_refused_in_one_line(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(UnsupportedModel, match=message) as caught:
        ends(tmp_path, tokenizer=content, tokenizer_config={"eos_token": "</s>"})
    assert len(str(caught.value)) < 500
    with pytest.raises(UnsupportedModel, match=r"tokenizer_config\.json: eos_token must be a string"):
        ends(tmp_path, tokenizer=tokenizer(), tokenizer_config={"eos_token": 10**400})
