"""E23: how the launches of a step divide a multiprocessor's memory into L1 and shared memory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from lowered import LIMITS

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.lowering import lowered_steps
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import read_model
from gpu_backend.ops.launch import Launch

SHAPES = Path(__file__).resolve().parents[3] / "scripts" / "bench" / "shapes"
ALL, BESIDE_L1 = 228 << 10, 132 << 10


def goes_through_l1(kernel: str) -> bool:
    return "single_token" in kernel or ("moe_gemv" in kernel and "kScale" not in kernel)


@pytest.mark.parametrize("form", [None, ScaleForm.ROW, ScaleForm.BLOCK])
@pytest.mark.parametrize(("name", "kept"), [("qwen3-30b-a3b", True), ("llama-3.2-1b", False)])
def test_a_step_leaves_l1_to_weights_of_experts_that_go_through_it(
    name: str, kept: bool, form: ScaleForm | None, tmp_path: Path
) -> None:
    """All of its launches ask for the same."""
    shutil.copy(SHAPES / f"{name}.json", tmp_path / "config.json")
    config = read_model(tmp_path)
    config = quantized(config, form) if form else config
    limits = replace(LIMITS, max_batch=256)
    shapes = GraphGrid(limits).shapes
    tokens: dict[bool, list[int]] = {True: [], False: []}
    for shape, step in zip(shapes, lowered_steps(config, limits, shapes, Chip(132)), strict=True):
        if shape.kind == StepKind.COPY:
            continue
        through_l1 = any(goes_through_l1(kernel) for choice in step for kernel in choice.kernels)
        divided = {work.divided for choice in step for work in choice.launches if isinstance(work, Launch)}
        assert divided == {BESIDE_L1 if through_l1 else ALL}
        tokens[through_l1].append(shape.tokens)
    assert max(tokens[True], default=0) == (0 if not kept else 1 if form else 128)
    assert min(tokens[False]) == (1 if not kept else 2 if form else 144)
