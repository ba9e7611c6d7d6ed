"""Whether the output layer is the embedding: as transformers decides it, by config.json and the weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from model_factory import as_gemma3_conditional, as_published, make_model
from quantized_factory import make_quantized
from reference_rig import Rig
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from blink.explain import config_of
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.registry import read_model
from gpu_backend.options import BackendOptions, described_model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.head import COMPARED_AT_ONCE
from gpu_backend.weights.safetensors import CheckpointError

EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
Tensors = dict[str, torch.Tensor]


def change(directory: Path, made: Callable[[Tensors], Tensors]) -> None:
    """Other tensors for a checkpoint, which may have those that it has."""
    file = directory / "model.safetensors"
    save_file(
        {name: tensor.clone() for name, tensor in made(load_file(file)).items()}, file, {"format": "pt"}
    )


def turned(tensors: Tensors, name: str = EMBEDDING) -> torch.Tensor:
    """The embedding, with the row of each token that of the next."""
    return tensors[name].roll(-1, 0)


def set_config(directory: Path, **changes: Any) -> None:
    """None takes a key out."""
    path = directory / "config.json"
    config = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def described(directory: Path, **changes: Any) -> Model:
    return described_model(BackendOptions(directory, **changes))


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    make_model(tmp_path, "llama", torch.bfloat16, tie_word_embeddings=True, num_hidden_layers=1)
    (tmp_path / "tokenizer.json").write_text("{}")  # which `blink explain` wants to be there
    return tmp_path


@pytest.fixture
def rigs() -> Iterator[Callable[[Path], Rig]]:
    opened: list[Rig] = []

    def open_rig(directory: Path) -> Rig:
        """With transformers' own reading of the directory as its oracle."""
        oracle = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        opened.append(Rig(directory, oracle))
        return opened[-1]

    yield open_rig
    for rig in opened:
        rig.close()


@pytest.mark.parametrize(
    "made",
    [
        lambda tensors: tensors,
        lambda tensors: {**tensors, HEAD: turned(tensors)},
        lambda tensors: {**tensors, HEAD: turned(tensors).float()},
        lambda tensors: {**tensors, HEAD: tensors[EMBEDDING]},
        lambda tensors: {HEAD if name == EMBEDDING else name: t for name, t in tensors.items()},
    ],
    ids=["none", "differs", "differs, in fp32", "the same", "in the embedding's place"],
)
def test_answers_are_those_of_transformers(
    tied: Path, rigs: Callable[[Path], Rig], made: Callable[[Tensors], Tensors]
) -> None:
    change(tied, made)
    rig = rigs(tied)
    rig.driver.start(0, rig.prompt(20, seed=1))
    rig.prefill([(0, 0, 20)])
    rig.decode([0])


def test_everybody_sees_the_same_model(tied: Path) -> None:
    """What is loaded, what `blink explain` counts, and what is told; with and without weights in fp8."""
    before, told = described(tied), list[str]()
    change(tied, lambda tensors: {**tensors, HEAD: turned(tensors)})
    model = described_model(BackendOptions(tied), told.append)
    assert (before.tied_head, model.tied_head) == (True, False)
    assert model.n_elements == before.n_elements + model.vocab_size * model.hidden
    assert len(told) == 1
    assert told[0].startswith("'lm_head.weight' is used, as it differs from the embedding")
    assert config_of(str(tied), None) == model
    rounded = described(tied, quantization="fp8")
    assert rounded.head == model.head
    assert rounded.scale_forms == (ScaleForm.ROW,)
    assert described(tied, random_weights=True).tied_head


def test_a_head_that_is_the_embedding_costs_nothing(tied: Path) -> None:
    before = described(tied)
    change(tied, lambda tensors: {**tensors, HEAD: tensors[EMBEDDING]})
    told: list[str] = []
    assert described_model(BackendOptions(tied), told.append) == before
    assert told == []


@pytest.mark.parametrize("place", [0, COMPARED_AT_ONCE // 4, -1])
def test_one_number_is_enough_to_differ(tmp_path: Path, place: int) -> None:
    make_model(tmp_path, "llama", tie_word_embeddings=True, num_hidden_layers=1, vocab_size=3000)

    def made(tensors: Tensors) -> Tensors:
        head = tensors[EMBEDDING].clone()
        head.view(-1)[place] += 1
        return {**tensors, HEAD: head}

    change(tmp_path, made)
    assert not described(tmp_path).tied_head


def test_a_head_of_other_sizes_is_refused_by_its_name(tied: Path) -> None:
    change(tied, lambda tensors: {**tensors, HEAD: tensors[EMBEDDING][:-1]})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight have shapes \(511, 96\)"):
        Checkpoint(tied).check_all(described(tied))


def test_without_a_head_config_json_has_to_say_so(tied: Path) -> None:
    """A head of random numbers, which transformers would take, serves nobody."""
    for value in (False, None):
        set_config(tied, tie_word_embeddings=value)
        with pytest.raises(CheckpointError, match=r"no tensor 'lm_head\.weight', .* set tie_word_embeddings"):
            described(tied)
    assert not config_of(str(tied), None).tied_head  # which loads nothing


def test_an_index_may_name_a_head_that_no_file_has(tied: Path) -> None:
    """As some do whose weights were tied before they were saved. The file itself has to be there."""
    names = [*load_file(tied / "model.safetensors"), HEAD]
    index = {"weight_map": dict.fromkeys(names, "model.safetensors")}
    (tied / "model.safetensors.index.json").write_text(json.dumps(index))
    assert described(tied).tied_head
    index["weight_map"][HEAD] = "head.safetensors"
    (tied / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"names 'head\.safetensors' as the file of 'lm_head\.weight'"):
        described(tied)
    set_config(tied, tie_word_embeddings=False)
    with pytest.raises(CheckpointError, match=r"names 'head\.safetensors' as the file of 'lm_head\.weight'"):
        described(tied)
    assert not config_of(str(tied), None).tied_head


def test_a_missing_tensor_is_found_before_anything_is_loaded(tied: Path) -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    change(tied, lambda tensors: {key: tensor for key, tensor in tensors.items() if key != name})
    with pytest.raises(CheckpointError, match=rf"no tensor '{name}'"):
        described(tied)


@pytest.mark.parametrize("outer", [True, False, None])
@pytest.mark.parametrize("inner", [True, False, None])
def test_the_whole_models_configuration_decides_and_not_its_text_part(
    tmp_path: Path, outer: bool | None, inner: bool | None
) -> None:
    make_model(tmp_path, "gemma3", num_hidden_layers=1, layer_types=["full_attention"])
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    text = json.loads((tmp_path / "config.json").read_text())["text_config"]
    set_config(tmp_path, tie_word_embeddings=outer, text_config={**text, "tie_word_embeddings": inner})
    assert read_model(tmp_path).tied_head == (outer is not False)


@pytest.mark.parametrize("name", ["language_model.lm_head.weight", HEAD])
def test_the_head_of_a_text_part_has_two_names(tmp_path: Path, name: str) -> None:
    make_model(tmp_path, "gemma3", num_hidden_layers=1, layer_types=["full_attention"])
    as_published(tmp_path)
    as_gemma3_conditional(tmp_path)
    assert described(tmp_path).tied_head
    change(tmp_path, lambda tensors: {**tensors, name: turned(tensors, f"language_model.{EMBEDDING}")})
    head = described(tmp_path).head
    assert head is not None
    assert head.tensors == (name,)
    set_config(tmp_path, tie_word_embeddings=False)
    assert described(tmp_path).head == head


@pytest.mark.parametrize("layout", ["fp8-block", "fp8-everything"])
def test_a_head_of_its_own_is_in_fp8_or_not_as_if_nothing_were_tied(tmp_path: Path, layout: str) -> None:
    make_quantized(tmp_path, "llama", layout)
    untied = described(tmp_path)
    set_config(tmp_path, tie_word_embeddings=True)
    assert read_model(tmp_path).tied_head
    assert described(tmp_path) == untied
