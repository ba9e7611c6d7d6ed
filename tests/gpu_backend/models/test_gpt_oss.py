"""gpt-oss as it is published: its description, and the kernels that serve it. Its logits are compared in
tests/gpu_backend/engines/test_reference.py."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lowered import assert_compiled, lowered_symbols
from model_factory import make_model

from gpu_backend.cuda.chip import HOPPER, SERVED, Capability, Chip
from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.lowering import lowered_steps
from gpu_backend.engines.native.sizing import weight_bytes
from gpu_backend.models.abi import Activation
from gpu_backend.models.description import Model
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import describe, read_model
from gpu_backend.ops.candidate import NoKernel
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

PUBLISHED = Path(__file__).parent / "configs" / "gpt-oss-20b.json"  # values, written down anew
LARGE = {"num_hidden_layers": 36, "num_local_experts": 128, "layer_types": None}
LIMITS = Limits(128, 131072, 2048, 16, page_size=16, total_pages=8192)


def published(**changes: Any) -> Model:
    """With the experts' weights in bf16."""
    raw = json.loads(PUBLISHED.read_text()) | changes
    raw.pop("quantization_config")
    return describe(raw)


@pytest.mark.parametrize(
    ("changes", "experts", "gigabytes"), [({}, 32, 41.8), (LARGE, 128, 233.7)], ids=["20b", "120b"]
)
def test_the_description(changes: dict[str, Any], experts: int, gigabytes: float) -> None:
    model = published(**changes)
    assert model.experts is not None
    assert (model.experts.count, model.experts.per_token, model.experts.renormalise) == (experts, 4, True)
    assert [layer.window for layer in model.layers] == [128, None] * (model.n_layers // 2)
    assert (model.activation, model.max_context) == (Activation.CLAMPED_SWIGLU, 131072)
    assert weight_bytes(model) / 1e9 == pytest.approx(gigabytes, abs=0.1)
    (rope,) = model.ropes
    table = rope.table(64, model.max_context)
    np.testing.assert_allclose(table[:, 1], 0.1 * math.log(32) + 1, rtol=1e-6)
    assert table[-1, 0] == pytest.approx(150000 ** (-62 / 64) / 32, rel=1e-5)


@pytest.mark.parametrize(
    ("key", "value"), [("swiglu_limit", 5.0), ("swiglu_alpha", 1.0), ("attention_bias", False)]
)
def test_other_arithmetic_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UnsupportedModel, match=f"config.json: {key}: .* is not supported, only"):
        published(**{key: value})


@pytest.mark.slow
def test_every_instance_compiles() -> None:
    model = published()
    assert_compiled(lowered_symbols(model), model.activation)


@pytest.mark.parametrize("capability", SERVED)
def test_dense_parts_have_kernels_on_every_gpu_and_experts_on_hopper(capability: Capability) -> None:
    """At the real sizes, of which 2,880 is no multiple of a tile. TiledMoe is for Hopper alone."""
    shapes = tuple(GraphGrid(LIMITS).shapes[::6])
    if capability == HOPPER:
        assert len(lowered_steps(published(), LIMITS, shapes, Chip(132, capability))) == len(shapes)
        return
    with pytest.raises(NoKernel, match="no kernel for Moe"):
        lowered_steps(published(), LIMITS, shapes, Chip(132, capability))


def test_experts_with_biases_are_not_served_in_fp8() -> None:
    model = quantized(published(), ScaleForm.ROW)
    with pytest.raises(NoKernel, match="moe_stream: it adds no bias to products of weights in fp8"):
        lowered_steps(model, LIMITS, tuple(GraphGrid(LIMITS).shapes[:1]), Chip(132))


@pytest.mark.parametrize(("changes", "gigabytes"), [({}, 13.8), (LARGE, 65.2)], ids=["20b", "120b"])
def test_the_published_checkpoint_in_mxfp4(changes: dict[str, Any], gigabytes: float) -> None:
    """Experts are multiplied as they are stored, and nothing of their size is a step's buffer. The router of
    one token is part of o."""
    model = describe(json.loads(PUBLISHED.read_text()) | changes)
    assert model.experts is not None
    assert weight_bytes(model) / 1e9 == pytest.approx(gigabytes, abs=0.1)
    shapes = tuple(GraphGrid(LIMITS).shapes[::6])
    assert shapes[0].tokens == 1
    steps = lowered_steps(model, LIMITS, shapes, Chip(132))
    for shape, step in zip(shapes, steps, strict=True):
        families = {choice.name for choice in step if choice.name.startswith("moe")}
        few = "moe_one" if shape.tokens == 1 else "moe_stream"
        many = "moe_stream" if shape.tokens <= 128 and model.experts.count == 128 else "moe_tiled"
        assert families == {few if shape.tokens <= 64 else many}
        assert "unpacked" not in {buffer.name for choice in step for buffer in choice.buffers}


def test_experts_are_loaded_one_at_a_time_in_whole_rows(tmp_path: Path) -> None:
    """What is uploaded is contiguous: rows of gate, then of up, whose columns alternate in the file."""
    make_model(tmp_path, "gpt-oss")
    model, checkpoint = read_model(tmp_path), Checkpoint(tmp_path)
    assert model.experts is not None
    gate_up, down = (
        checkpoint.tensor(f"model.layers.1.mlp.experts.{name}_proj") for name in ("gate_up", "down")
    )
    layer, n = model.layers[1], model.experts.intermediate
    parts = [part for part, _ in checkpoint.parts(layer.gate_up)]
    assert len(parts) == model.experts.count
    for part, given in zip(parts, gate_up, strict=True):
        assert part.flags.c_contiguous
        np.testing.assert_array_equal(part[:n], given[:, 0::2].T)
        np.testing.assert_array_equal(part[n:], given[:, 1::2].T)
    for (part, _), given in zip(checkpoint.parts(layer.down), down, strict=True):
        assert part.flags.c_contiguous
        np.testing.assert_array_equal(part, given.T)


def test_experts_of_another_shape_are_refused(tmp_path: Path) -> None:
    make_model(tmp_path, "gpt-oss")
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**raw, "intermediate_size": 48}))
    with pytest.raises(
        CheckpointError, match=r"gate_up_proj have shapes \(8, 96, 80\); .* asks for \(8, 96, 96\)"
    ):
        Checkpoint(tmp_path).check_all(read_model(tmp_path))
