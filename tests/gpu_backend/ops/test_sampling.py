"""How a step samples, with logits processors and without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lowered import LIMITS
from model_config import model_config

from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.lowering import buffer_bytes, kernel_names, lowered_steps
from gpu_backend.engines.native.sizing import activation_bytes

CONFIG = model_config(n_heads=32, n_kv_heads=4, head_dim=128)


@pytest.mark.parametrize("n", [0, 2])
def test_processors_are_linked_where_there_are_some(n: int) -> None:
    """Then every step that samples has room for what they return, which the model's memory counts."""
    limits, chip = replace(LIMITS, processors=n), Chip(132)
    shapes = GraphGrid(limits).shapes
    steps = lowered_steps(CONFIG, limits, shapes, chip)
    samplers = {name for name in kernel_names(steps) if name.startswith("sample_kernel")}
    assert samplers == {f"sample_kernel<blink::{'LinkedProcessors' if n else 'NoProcessors'}>"}
    sizes = buffer_bytes(steps)
    assert sizes.get("processed", 0) == (sizes["logits"] if n else 0)
    assert activation_bytes(CONFIG, limits, shapes, chip) == sizes
