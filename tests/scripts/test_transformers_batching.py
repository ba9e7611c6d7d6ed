"""The peer's bursts, with a small model on the CPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from bench import transformers_batching

from blink.bench.scheduler_runs import parse_workload
from gpu_backend.engines.native.weights import RANDOM_OUTPUT_STD, RANDOM_STD

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
}


EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}


@pytest.mark.parametrize(
    ("shape", "changes"),
    [
        ("llama-3.2-1b", SMALL),
        pytest.param("qwen3-30b-a3b", SMALL | EXPERTS, marks=pytest.mark.slow),
    ],
)
def test_a_burst_is_answered_in_full_and_timed(shape: str, changes: dict[str, int]) -> None:
    model = transformers_batching.load(shape, "cpu", **changes)
    works = [parse_workload("2x16-8"), parse_workload("3x5-4")]
    first, second = transformers_batching.measure(model, works, is_async=False, rounds=1)
    assert [first["workload"], second["workload"]] == ["2x16-8", "3x5-4"]
    assert all(0 < result[took] < 60 for result in (first, second) for took in ("seconds", "first_s"))


def test_random_weights_are_as_large_as_blinks() -> None:
    torch.manual_seed(0)
    model = transformers_batching.load("llama-3.2-1b", "cpu", **SMALL)
    for layer in model.model.layers:
        assert layer.self_attn.o_proj.weight.std().item() == pytest.approx(RANDOM_OUTPUT_STD, rel=0.05)
        assert layer.self_attn.q_proj.weight.std().item() == pytest.approx(RANDOM_STD, rel=0.05)
