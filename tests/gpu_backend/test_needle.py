"""A value that followed a key 2,000 tokens ago is found again, by the reference engine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_driver import EngineDriver
from needle_model import answers, make_needle_model, needle_prompt

from gpu_backend.engines.base import Limits
from gpu_backend.engines.reference import HostMemory, ReferenceEngine
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint

LENGTH = 2000
DEPTHS = (0.0, 0.3, 0.7, 1.0)
LIMITS = Limits(
    max_batch=4, max_context=2048, max_prefill_tokens=256, max_prefill_slots=4, page_size=16, total_pages=512
)


@pytest.mark.parametrize("kv_fp8", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("head_dim", "head"), [(64, 0), pytest.param(128, 3, marks=pytest.mark.slow)])
def test_a_needle_is_found_at_any_depth(tmp_path: Path, head_dim: int, head: int, kv_fp8: bool) -> None:
    make_needle_model(tmp_path, 4, 2, head_dim, head, LIMITS.max_context)
    config, limits = read_model(tmp_path), replace(LIMITS, kv_fp8=kv_fp8)
    memory = HostMemory()
    driver = EngineDriver(memory, limits, config.vocab_size)
    engine = ReferenceEngine(config, Checkpoint(tmp_path), limits, driver.grid.shapes, driver.batch, 2)
    driver.run = engine.run
    asked = [needle_prompt(LENGTH, depth, seed) for seed, depth in enumerate(DEPTHS)]
    assert answers(driver, [prompt for prompt, _ in asked]) == [value for _, value in asked]
    engine.close()
    memory.close()
