"""The CUDA engine finds a value again that followed a key up to 128,000 tokens ago."""

from __future__ import annotations

from pathlib import Path

import pytest
from engine_driver import EngineDriver
from needle_model import answers, make_needle_model, needle_prompt

from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import Limits
from gpu_backend.engines.native.engine import NativeEngine
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

DEPTHS = (0.0, 0.01, 0.25, 0.5, 0.75, 0.99, 1.0)
PAGE = 16


@pytest.mark.parametrize(
    ("length", "heads", "kv_heads", "head_dim", "head"),
    [
        (32_000, 4, 2, 64, 0),
        (32_000, 8, 2, 64, 5),
        (32_000, 4, 2, 128, 3),
        (32_000, 8, 1, 128, 7),
        (128_000, 8, 2, 128, 5),
    ],
)
def test_a_needle_is_found_at_any_depth(
    tmp_path: Path, length: int, heads: int, kv_heads: int, head_dim: int, head: int
) -> None:
    context = 1 << length.bit_length()
    limits = Limits(
        max_batch=len(DEPTHS),
        max_context=context,
        max_prefill_tokens=2048,
        max_prefill_slots=4,
        page_size=PAGE,
        total_pages=len(DEPTHS) * context // PAGE,
    )
    make_needle_model(tmp_path, heads, kv_heads, head_dim, head, context)
    config = read_model(tmp_path)
    device = Device()
    memory = DeviceMemory(device)
    driver = EngineDriver(memory, limits, config.vocab_size)
    engine = NativeEngine(device, config, Checkpoint(tmp_path), limits, driver.grid.shapes, driver.batch)
    driver.run = engine.run
    asked = [needle_prompt(length, depth, seed) for seed, depth in enumerate(DEPTHS)]
    assert answers(driver, [prompt for prompt, _ in asked]) == [value for _, value in asked]
    engine.close()
    memory.close()
    device.close()
