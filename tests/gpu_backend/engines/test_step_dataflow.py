"""What a step computes, whatever its shape: every product has its own operands, every norm its weight and its
factor, and each buffer has room (symbolic_step.py)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from small_models import DENSE, EXPERTS
from symbolic_step import SymbolicStep, loads

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import HOPPER, SERVED, Capability, Chip
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.models.description import Weight
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import read_model
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS

HELD = {**EXPERTS, "num_attention_heads": 8}  # attention's products of few rows are held_qkv and held_o
BIASED = {  # the router of one row is part of o
    **DENSE,
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 288,
    "intermediate_size": 192,
    "num_local_experts": 32,
    "num_attention_heads": 8,
    "sliding_window": 100,
}
MODELS = {
    "dense": DENSE,
    "float16": {**DENSE, "dtype": "float16"},
    "no flash": {**DENSE, "head_dim": 16, "hidden_size": 96, "intermediate_size": 104},
    "large": {**DENSE, "hidden_size": 2048, "intermediate_size": 4096, "vocab_size": 40000},
    "bias and windows": {
        **DENSE,
        "architectures": ["Qwen2ForCausalLM"],
        "use_sliding_window": True,
        "sliding_window": 100,
        "max_window_layers": 1,
    },
    "queries that grow": {
        **DENSE,
        "architectures": ["Ministral3ForCausalLM"],
        "hidden_size": 2048,
        "intermediate_size": 4096,
        "num_attention_heads": 16,
        "head_dim": 128,
        "vocab_size": 40000,
    },
    "sinks and biases": {
        **DENSE,
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 288,
        "intermediate_size": 192,
        "num_local_experts": 32,
        "sliding_window": 100,
    },
    "sinks and biases of other sizes": {
        **DENSE,
        "architectures": ["GptOssForCausalLM"],
        "hidden_size": 520,
        "intermediate_size": 72,
        "num_local_experts": 5,
        "head_dim": 48,
    },
    "biases of one token": BIASED,
    "norms behind sublayers": {
        **DENSE,
        "architectures": ["Gemma3ForCausalLM"],
        "head_dim": 256,
        "sliding_window": 64,
        "sliding_window_pattern": 2,
    },
    "norms behind sublayers in float16": {
        **DENSE,
        "architectures": ["Gemma3ForCausalLM"],
        "dtype": "float16",
    },
    "experts": EXPERTS,
    "held": HELD,
    "experts in float16": {**HELD, "dtype": "float16"},
    "dense first": {**HELD, "mlp_only_layers": [0]},
    "dense between": {**HELD, "mlp_only_layers": [1]},
    "dense last": {**HELD, "mlp_only_layers": [2]},
    "odd experts": {
        **HELD,
        "hidden_size": 520,
        "vocab_size": 5001,
        "num_experts": 13,
        "moe_intermediate_size": 72,
    },
    "nine a token": {**HELD, "num_experts": 16, "num_experts_per_tok": 9},
    "not in slices": {**HELD, "moe_intermediate_size": 72},
    "many experts": {**HELD, "hidden_size": 2048, "num_experts": 128, "num_experts_per_tok": 8},
}
LIMITS = {
    "small": {},
    "one at a time": {"max_batch": 1, "max_prefill_slots": 1},
    "a token at a time": {"max_prefill_tokens": 1, "max_prefill_slots": 1},
    "many lanes": {"max_batch": 70, "max_prefill_slots": 70, "max_prefill_tokens": 500},
    "large": {"max_batch": 130, "max_prefill_slots": 8, "max_prefill_tokens": 600},
}
MANY_TOKENS = ("many lanes", "large")


@pytest.mark.parametrize(
    "limits_of", [pytest.param(name, marks=[pytest.mark.slow] * (name in MANY_TOKENS)) for name in LIMITS]
)
@pytest.mark.parametrize("model", MODELS)
def test_every_lane_gets_its_logits(model: str, limits_of: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(MODELS[model]))
    defaults = {"max_batch": 20, "max_prefill_tokens": 100, "max_prefill_slots": 4}
    limits = Limits(max_context=512, page_size=16, total_pages=64, **{**defaults, **LIMITS[limits_of]})
    shapes = GraphGrid(limits).shapes
    step = SymbolicStep(read_model(tmp_path), limits, shapes)
    check(step, outermost(step, shapes), limits)


@pytest.mark.parametrize("kv_fp8", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        "dense",
        "no flash",
        "large",
        "bias and windows",
        "queries that grow",
        "sinks and biases",
        "norms behind sublayers",
        "held",
        "many experts",
    ],
)
def test_steps_that_verify_drafts(model: str, kv_fp8: bool, tmp_path: Path) -> None:
    """A row of a sequence attends to keys of this step, which are in the cache before any row attends."""
    (tmp_path / "config.json").write_text(json.dumps(MODELS[model]))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64, kv_fp8=kv_fp8, max_drafts=4)
    shapes = [shape for shape in GraphGrid(limits).shapes if shape.verifies]
    assert max(shape.tokens for shape in shapes if shape.kind == StepKind.DECODE) == 100
    assert any(shape.kind == StepKind.MIXED for shape in shapes)
    step = SymbolicStep(read_model(tmp_path), limits, shapes)
    check(step, outermost(step, shapes), limits)


def outermost(step: SymbolicStep, shapes: Iterable[Shape]) -> list[Shape]:
    """The first and the last of the shapes of a kind that launch the same kernels. Those between them differ
    in numbers of rows, and in the rows of a tile, which a symbolic matmul does not look at."""
    alike: dict[tuple[StepKind, tuple[str, ...]], list[Shape]] = {}
    for shape in shapes:
        alike.setdefault((shape.kind, step.kernels(shape)), []).append(shape)
    return [shape for group in alike.values() for shape in dict.fromkeys((group[0], group[-1]))]


def check(step: SymbolicStep, shapes: Iterable[Shape], limits: Limits) -> None:
    """Every load of each shape gives the logits that the model says."""
    for shape in shapes:
        for load in loads(shape, limits):
            logits = step.run(shape, load)
            for batch_slot, token in enumerate(load.last):
                assert logits[batch_slot] == step.expected(token), f"lane {batch_slot} of {load} in {shape}"


@pytest.mark.parametrize(
    "model",
    [
        "dense",
        "no flash",
        "large",
        "bias and windows",
        "sinks and biases",
        "norms behind sublayers",
        "float16",
        "held",
    ],
)
def test_a_cache_in_fp8(model: str, tmp_path: Path) -> None:
    """Each layer's kernels have its scales and its part of a cache of half the size."""
    (tmp_path / "config.json").write_text(json.dumps(MODELS[model]))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64, kv_fp8=True)
    shapes = [shape for shape in GraphGrid(limits).shapes if shape.kind != StepKind.COPY]
    step = SymbolicStep(read_model(tmp_path), limits, shapes)
    check(step, shapes, limits)


@pytest.mark.parametrize("capability", [one for one in SERVED if one != HOPPER])
@pytest.mark.parametrize("model", ["dense", "bias and windows", "norms behind sublayers"])
def test_gpus_other_than_hopper(model: str, capability: Capability, tmp_path: Path) -> None:
    """The portable kernels compute the same, each for its own tokens."""
    (tmp_path / "config.json").write_text(json.dumps(MODELS[model]))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64, max_drafts=3)
    shapes = GraphGrid(limits).shapes
    step = SymbolicStep(read_model(tmp_path), limits, shapes, Chip(84, capability))
    check(step, shapes, limits)


FORMS: list[Form] = [*ScaleForm, GroupForm(Codes.INT4, 128), GroupForm(Codes.E2M1, 32)]
IN_FP8 = {"intermediate_size": 1024}
FP8_MODELS = {
    "dense": {**DENSE, **IN_FP8},
    "float16": {**MODELS["float16"], **IN_FP8},
    "norms behind sublayers": {**MODELS["norms behind sublayers"], **IN_FP8},
    "experts": {**EXPERTS, "moe_intermediate_size": 128},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", FP8_MODELS)
def test_a_model_with_narrow_weights(model: str, form: Form, tmp_path: Path) -> None:
    """Of steps of few rows, which multiply halves, and of some that have more."""
    (tmp_path / "config.json").write_text(json.dumps(FP8_MODELS[model]))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64)
    shapes = GraphGrid(limits).shapes
    step = SymbolicStep(quantized(read_model(tmp_path), form), limits, shapes)
    check(step, shapes, limits)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", FP8_MODELS)
def test_many_rows_with_narrow_weights(model: str, form: Form, tmp_path: Path) -> None:
    """Of steps whose every matmul has more rows than those that multiply halves."""
    (tmp_path / "config.json").write_text(json.dumps(FP8_MODELS[model]))
    limits = Limits(130, 512, 600, 70, page_size=16, total_pages=128)
    many = [
        shape
        for shape in GraphGrid(limits).shapes
        if min(shape.tokens, shape.batch_slots) > SKINNY_MAX_ROWS and shape.kind != StepKind.COPY
    ]
    assert {shape.kind for shape in many} >= {StepKind.DECODE, StepKind.PREFILL}
    step = SymbolicStep(quantized(read_model(tmp_path), form), limits, many)
    check(step, outermost(step, many), limits)


FP8_EXPERTS = {
    "few": {**EXPERTS, "moe_intermediate_size": 128},
    "not in slices": {**EXPERTS, "moe_intermediate_size": 384, "dtype": "float16"},
    "many": {**MODELS["many experts"], "moe_intermediate_size": 256},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", FP8_EXPERTS)
def test_narrow_experts(model: str, form: Form, tmp_path: Path) -> None:
    """Of steps of every size; attention's matrices are of halves."""
    (tmp_path / "config.json").write_text(json.dumps(FP8_EXPERTS[model]))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64)
    shapes = GraphGrid(limits).shapes
    described = quantized(read_model(tmp_path), form)
    layers = (replace(layer, qkv=plain(layer.qkv), o=plain(layer.o)) for layer in described.layers)
    step = SymbolicStep(replace(described, layers=tuple(layers)), limits, shapes)
    check(step, shapes, limits)


@pytest.mark.parametrize("form", [GroupForm(Codes.INT4, 32), GroupForm(Codes.E2M1, 32)])
def test_experts_of_codes_with_biases(form: GroupForm, tmp_path: Path) -> None:
    """Of gpt-oss, whose attention is in halves, in steps of every size."""
    (tmp_path / "config.json").write_text(json.dumps(BIASED))
    limits = Limits(20, 512, 100, 4, page_size=16, total_pages=64)
    shapes = GraphGrid(limits).shapes
    described = quantized(read_model(tmp_path), form)
    layers = (replace(layer, qkv=plain(layer.qkv), o=plain(layer.o)) for layer in described.layers)
    step = SymbolicStep(replace(described, layers=tuple(layers)), limits, shapes)
    assert any("moe_single_codes_down" in kernel for kernel in step.kernels(shapes[0]))
    check(step, shapes, limits)


FEW_ROWS = {
    "experts": ({**MODELS["many experts"], "num_attention_heads": 16, "moe_intermediate_size": 128}, 8),
    "dense": ({**DENSE, **IN_FP8}, 4),
    "dense float16": ({**MODELS["float16"], **IN_FP8}, 4),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", FEW_ROWS)
def test_few_rows_with_narrow_weights(model: str, form: Form, tmp_path: Path) -> None:
    """Weights become halves in registers; the router of one row is fused into o."""
    config, rows = FEW_ROWS[model]
    (tmp_path / "config.json").write_text(json.dumps(config))
    limits = Limits(rows, 512, 100, 2, page_size=16, total_pages=64)
    few = [
        shape for shape in GraphGrid(limits).shapes if shape.kind == StepKind.DECODE and shape.tokens <= rows
    ]
    assert {shape.tokens for shape in few} >= {1, 2, rows}
    step = SymbolicStep(quantized(read_model(tmp_path), form), limits, few)
    check(step, few, limits)


def plain(weight: Weight) -> Weight:
    return replace(weight, scales=None)
