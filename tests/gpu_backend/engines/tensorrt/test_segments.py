"""A step is cut into plans and what stays ours, so that each reads what was written last."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from plan_segments import GEMMA, SHAPES, segmented_step
from small_models import DENSE, EXPERTS

from gpu_backend.engines.base import Shape
from gpu_backend.engines.tensorrt.segments import Segment, reads
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops import operations as ops
from gpu_backend.ops.matrix import Buffer

FP8 = {**DENSE, "intermediate_size": 1024}
Settings = tuple[dict[str, Any], ScaleForm | None]
MODELS: dict[str, Settings] = {
    "qwen3": (DENSE, None),
    "gemma3": (GEMMA, None),
    "qwen3-moe": (EXPERTS, None),
    "qwen3-fp8": (FP8, ScaleForm.ROW),
}
of_models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
of_shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.kind.name)


def kinds(step: list[ops.Operation | Segment]) -> list[str]:
    return [item.name if isinstance(item, Segment) else type(item).__name__ for item in step]


@pytest.mark.parametrize("model", [DENSE, GEMMA], ids=["qwen3", "gemma3"])
def test_a_dense_decode_step(tmp_path: Path, model: dict[str, Any]) -> None:
    step = [kind for kind in kinds(segmented_step(tmp_path, model, SHAPES[0])) if kind != "DecodePlan"]
    layer = "o, gate_up, down, "
    assert step == [
        *("Gate", "Embed", "qkv", "DecodeAttention"),
        *(f"{layer}qkv", "DecodeAttention") * 2,
        *(f"{layer}head", "Sample"),
    ]


def test_experts_stay_ours(tmp_path: Path) -> None:
    step = kinds(segmented_step(tmp_path, EXPERTS, SHAPES[0]))
    assert step[-5:] == ["DecodeAttention", "o", "Moe", "head", "Sample"]


def test_products_of_fp8_stay_ours(tmp_path: Path) -> None:
    step = segmented_step(tmp_path, FP8, SHAPES[1], ScaleForm.ROW)
    assert [item.name for item in step if isinstance(item, Segment)] == ["head"]
    assert len([item for item in step if isinstance(item, ops.MatMul)]) == 4 * DENSE["num_hidden_layers"]


@of_shapes
@of_models
def test_the_residual_is_read_where_it_is(tmp_path: Path, model: Settings, shape: Shape) -> None:
    """A plan writes nothing that it reads: the sum is in one of two buffers, and everything behind reads the
    newer one."""
    newest, buffers, plans = "", set[str](), 0
    for item in segmented_step(tmp_path, model[0], shape, model[1]):
        read, wrote = names(item)
        assert {name for name in read if name.startswith("residual")} <= {newest}
        if isinstance(item, Segment):
            plans += 1
            assert not read & wrote
            assert all(type(tensor.operand) is Buffer for tensor in (*item.activations, *item.outputs))
        newest = next((name for name in wrote if name.startswith("residual")), newest)
        buffers.add(newest)
    assert plans
    assert buffers <= {"", "residual", "residual_turn"}


def names(item: ops.Operation | Segment) -> tuple[set[str], set[str]]:
    """Of the buffers that an item of a step reads, and of those that it writes."""
    match item:
        case Segment():
            tensors = item.activations, item.outputs
            read, wrote = ({t.operand.name for t in of if isinstance(t.operand, Buffer)} for of in tensors)
            return read, wrote
        case ops.Embed() | ops.MatMul():
            written = item.out.name
        case ops.AddNorm() | ops.Moe():
            written = item.residual.name
        case _:
            written = ""
    return {buffer.name for buffer in reads(item)}, {written}


@of_shapes
def test_plans_write_what_is_read_behind_them_and_no_more(tmp_path: Path, shape: Shape) -> None:
    step = segmented_step(tmp_path, DENSE, shape)
    left = [[tensor.name for tensor in item.outputs] for item in step if isinstance(item, Segment)]
    assert left == [["qkv_out"], *[["residual_out", "qkv_out"]] * 2, ["logits_out"]]
