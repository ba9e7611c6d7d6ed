"""The peer's bursts, with a small model on the CPU."""

from __future__ import annotations

import json

import torch
import transformers
from bench import transformers_batching

from blink.bench.scheduler_runs import parse_workload

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
}


def test_a_burst_is_answered_in_full_and_timed() -> None:
    shape = json.loads((transformers_batching.SHAPES / "llama-3.2-1b.json").read_text())
    config = transformers.AutoConfig.for_model(**(shape | SMALL))
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    works = [parse_workload("2x16-8"), parse_workload("3x5-4")]
    first, second = transformers_batching.measure(model, works, is_async=False, rounds=1)
    assert [first["workload"], second["workload"]] == ["2x16-8", "3x5-4"]
    assert all(0 < result[took] < 60 for result in (first, second) for took in ("seconds", "first_s"))
