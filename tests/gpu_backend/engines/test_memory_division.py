"""E23: how the launches of a step divide a multiprocessor's memory into L1 and shared memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from lowered import LIMITS
from shape_model import shape_model

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.lowering import lowered_steps
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.ops.choice import divisions

ALL, BESIDE_L1 = 228 << 10, 132 << 10
FORMS = [None, ScaleForm.ROW, ScaleForm.BLOCK]


def read(scratch: Path, name: str, form: ScaleForm | None, **changes: int) -> Model:
    model = shape_model(name, scratch, **changes)
    return quantized(model, form) if form else model


def steps_that_keep_l1(model: Model) -> list[int]:
    """The tokens of the steps that do; in each step, all launches ask for the same."""
    limits = replace(LIMITS, max_batch=256, host_pages=64)
    shapes = GraphGrid(limits).shapes
    keep: list[int] = []
    for shape, step in zip(shapes, lowered_steps(model, limits, shapes, Chip(132)), strict=True):
        needs_l1 = any(loads_to_registers(kernel) for choice in step for kernel in choice.kernels)
        assert divisions(step) == {BESIDE_L1 if needs_l1 else ALL}
        if needs_l1:
            assert shape.kind != StepKind.COPY
            keep.append(shape.tokens)
    assert any(shape.kind == StepKind.COPY for shape in shapes)
    return keep


def loads_to_registers(kernel: str) -> bool:
    """Weights of experts: of one token, or of several in halves."""
    return "single_token" in kernel or ("moe_gemv" in kernel and "kScale" not in kernel)


@pytest.mark.parametrize(("form", "most"), [(FORMS[0], 128), (FORMS[1], 1), (FORMS[2], 1)])
def test_experts_keep_l1_for_weights_that_they_load_to_registers(
    form: ScaleForm | None, most: int, tmp_path: Path
) -> None:
    tokens = steps_that_keep_l1(read(tmp_path, "qwen3-30b-a3b", form))
    assert (min(tokens), max(tokens)) == (1, most)


@pytest.mark.parametrize("form", FORMS)
def test_a_model_without_experts_needs_no_l1(form: ScaleForm | None, tmp_path: Path) -> None:
    assert steps_that_keep_l1(read(tmp_path, "llama-3.2-1b", form)) == []


def test_so_few_experts_that_their_tokens_are_multiplied_in_tiles_need_no_l1(tmp_path: Path) -> None:
    model = read(tmp_path, "qwen3-30b-a3b", None, num_experts=8, num_experts_per_tok=2)
    assert max(steps_that_keep_l1(model)) < 48


def test_one_token_of_so_many_experts_that_they_go_through_the_ring_needs_no_l1(tmp_path: Path) -> None:
    model = read(tmp_path, "qwen3-30b-a3b", ScaleForm.ROW, num_experts_per_tok=10)
    assert steps_that_keep_l1(model) == []
