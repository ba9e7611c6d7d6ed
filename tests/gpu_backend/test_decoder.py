"""Which models the decoder kernel takes, and how it cuts their matrices."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_backend.cuda.kernels import kernel_names, suits_decoder
from gpu_backend.engine.decoder import CHUNK, WARPS, stage_chunks
from gpu_backend.engine.decoder_abi import STAGE_CHUNKS
from gpu_backend.model.config import ModelConfig

SHAPES = Path(__file__).parents[2] / "scripts" / "bench" / "shapes"
DENSE = ("llama-3-8b", "llama-3.2-1b", "qwen3-8b", "qwen3-32b", "phi-4")


def config(name: str, scratch: Path) -> ModelConfig:
    shutil.copy(SHAPES / f"{name}.json", scratch / "config.json")
    return ModelConfig.from_directory(scratch)


@pytest.mark.parametrize("name", DENSE)
def test_it_takes_every_dense_model_in_whole_stages(name: str, tmp_path: Path) -> None:
    model = config(name, tmp_path)
    assert suits_decoder(model)
    assert "decoder" in kernel_names(model)
    for columns in (model.hidden, model.n_heads * model.head_dim, model.intermediate):
        stage = stage_chunks(columns)
        assert 4 <= stage <= STAGE_CHUNKS  # a shorter one would not keep the memory busy
        assert columns % (WARPS * CHUNK * stage) == 0


def test_it_leaves_experts_and_odd_sizes_to_the_other_kernels(tmp_path: Path) -> None:
    llama = config("llama-3-8b", tmp_path)
    others = [
        config("qwen3-30b-a3b", tmp_path),
        replace(llama, hidden=llama.hidden + 128),
        replace(llama, intermediate=llama.intermediate + 64),
        replace(llama, vocab_size=llama.vocab_size + 8),
        replace(llama, head_dim=96, n_heads=32),
    ]
    assert not any(suits_decoder(other) for other in others)
    assert not any("decoder" in kernel_names(other) for other in others)
