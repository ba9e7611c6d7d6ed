"""Conversion to the engine's half types, and how much memory a model takes."""

from typing import Any

import numpy as np
import pytest
import torch
from model_config import model_config

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.element import Element
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.model import heads_of, target_of
from gpu_backend.engines.native.sizing import (
    RESERVE_BYTES,
    activation_bytes,
    mixed_share,
    page_bytes,
    pages_that_fit,
    weight_bytes,
)
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.models.description import Experts
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.ops.attention import DecodePlan, Reach
from gpu_backend.ops.decode_attention import kv_split_limits
from gpu_backend.ops.matrix import Matrix
from gpu_backend.ops.moe_stream import SMALL_BATCH_PAIRS, SMALL_BATCH_TOKENS, streams_experts
from gpu_backend.ops.moe_tiled import GROUPED_UNIT
from gpu_backend.ops.operations import Routing

LLAMA3_8B_SIZES: dict[str, Any] = {
    "n_layers": 32,
    "hidden": 4096,
    "n_heads": 32,
    "n_kv_heads": 8,
    "head_dim": 128,
    "intermediate": 14336,
    "vocab_size": 128256,
    "max_context": 8192,
    "eos_ids": (128001,),
}
QWEN3_30B_A3B_SIZES: dict[str, Any] = {
    **LLAMA3_8B_SIZES,
    "n_layers": 48,
    "hidden": 2048,
    "n_kv_heads": 4,
    "intermediate": 6144,
    "vocab_size": 151936,
    "experts": Experts(count=128, per_token=8, intermediate=768, renormalise=True),
}
LLAMA3_8B, QWEN3_30B_A3B = model_config(**LLAMA3_8B_SIZES), model_config(**QWEN3_30B_A3B_SIZES)
LIMITS = Limits(
    max_batch=64,
    max_context=8192,
    max_prefill_tokens=2048,
    max_prefill_slots=16,
    page_size=16,
    total_pages=0,
)
EDGES = torch.tensor([0.0, -0.0, 1.0, 60000.0, 1.00390625, 1.01171875, 3e-5])
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize("wanted", ["bfloat16", "float16"])
@pytest.mark.parametrize("dtype", list(TYPES))
def test_half_bits_rounds_as_torch_does(dtype: str, wanted: str) -> None:
    torch.manual_seed(0)
    values = torch.cat([torch.randn(5000), EDGES])
    values = values.to(TYPES[dtype])
    stored = values.view(torch.uint16).numpy() if dtype == "bfloat16" else values.numpy()
    expected = values.to(TYPES[wanted]).view(torch.uint16).numpy()
    assert np.array_equal(half_bits(stored, dtype, wanted), expected)


def test_llama3_8b_takes_what_it_is_known_to_take() -> None:
    assert weight_bytes(LLAMA3_8B) == 2 * 8_030_261_248
    assert page_bytes(LLAMA3_8B, LIMITS) == 16 * 131_072


def test_fp8_takes_half_of_what_it_rounds() -> None:
    """Embedding and head stay, and so do the norms."""
    kept = 2 * 128256 * 4096 + 65 * 4096
    elements = 8_030_261_248 - kept
    rows = 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    by_row, by_block = (quantized(LLAMA3_8B, form) for form in (ScaleForm.ROW, ScaleForm.BLOCK))
    assert weight_bytes(by_row) == 2 * kept + elements + 4 * rows
    assert weight_bytes(by_block) == 2 * kept + elements + 4 * elements // 128**2
    assert page_bytes(by_row, LIMITS) == page_bytes(LLAMA3_8B, LIMITS)


def test_pages_fill_what_is_left() -> None:
    shapes = GraphGrid(LIMITS).shapes
    free = 40 << 30
    pages = pages_that_fit(LLAMA3_8B, LIMITS, shapes, free, Chip(132))
    fixed = weight_bytes(LLAMA3_8B) + RESERVE_BYTES
    fixed += sum(activation_bytes(LLAMA3_8B, LIMITS, shapes, Chip(132)).values())
    page = page_bytes(LLAMA3_8B, LIMITS)
    assert fixed + pages * page <= 0.9 * free < fixed + (pages + 1) * page


def test_too_little_memory_is_refused_with_the_sizes() -> None:
    message = (
        r"does not fit: weights 16\.1 GB \+ KV cache of at least 0\.1 GB \+ activations 0\.\d GB .* "
        r"= 17\.\d GB, and of 17\.2 GB of free GPU memory 15\.5 GB"
    )
    with pytest.raises(ValueError, match=message):
        pages_that_fit(LLAMA3_8B, LIMITS, GraphGrid(LIMITS).shapes, 16 << 30, Chip(132))


@pytest.mark.slow
def test_a_mixture_of_experts_takes_what_it_is_known_to_take() -> None:
    """Qwen3-30B-A3B, and no more room for the MLP that none of its layers has."""
    assert weight_bytes(QWEN3_30B_A3B) == 2 * 30_532_122_624
    assert page_bytes(QWEN3_30B_A3B, LIMITS) == 16 * 98_304
    sizes = activation_bytes(QWEN3_30B_A3B, LIMITS, GraphGrid(LIMITS).shapes, Chip(132))
    assert not sizes.keys() & {"gate_up", "product"}
    assert sizes["expert_rows"] == 2 * 2048 * 8 * 2048


def test_a_plan_has_room_for_every_routing() -> None:
    """Pairs in units of one expert: at worst every expert's last unit is not full."""
    experts = Experts(count=5, per_token=2, intermediate=8, renormalise=True)
    rng = np.random.default_rng(0)
    for tokens in (21, 64, 130, 500):
        config = model_config(**{**QWEN3_30B_A3B_SIZES, "experts": experts})
        shapes = (Shape(StepKind.DECODE, tokens, tokens),)
        room = activation_bytes(config, LIMITS, shapes, Chip(132))["expert_plan"] // 16 - 1
        for _ in range(50):
            counts = rng.multinomial(2 * tokens, rng.dirichlet(0.3 * np.ones(5)))
            assert sum(-(-counts // GROUPED_UNIT)) <= room


def test_streamed_pairs_fit_the_kernel() -> None:
    """kSmallBatchTokens and kSmallBatchPairs of kernels/ops/moe/small_batch_plan.h, with as many experts as
    are supported."""
    for per_token, most in ((1, 128), (8, 128), (20, 102), (32, 64)):
        routing = Routing(256, per_token, True)
        assert [n for n in range(1, 3000) if streams_experts(routing, n)] == list(range(1, most + 1))
        assert most <= SMALL_BATCH_TOKENS
        assert most * per_token <= SMALL_BATCH_PAIRS * 256 == 2048


def test_a_mixed_step_takes_as_many_prompt_tokens_as_the_weights_hide() -> None:
    """Few of a dense model, more where kernels are short, all that there may be of a mixture of experts."""
    assert mixed_share(LLAMA3_8B) == 128
    small = model_config(**{**LLAMA3_8B_SIZES, "hidden": 2048, "intermediate": 8192, "head_dim": 64})
    assert mixed_share(small) == 384
    assert mixed_share(QWEN3_30B_A3B) == 1024
    assert mixed_share(quantized(LLAMA3_8B, ScaleForm.ROW)) >= 128  # half to read, at twice the speed


def test_attention_cuts_rows_for_every_block_and_within_its_buffer() -> None:
    """E16: as many pieces as there are blocks for them, of few rows; of many, whole rows up to a length."""
    heads, target = heads_of(QWEN3_30B_A3B), target_of(QWEN3_30B_A3B, Chip(132))
    reach = Reach(0, Matrix(1, heads.dim, Element.FP32), None)
    cuts = {
        batch_slots: kv_split_limits(DecodePlan(batch_slots, False, heads, reach), heads, target)
        for batch_slots in (1, 8, 32, 64, 256)
    }
    assert [cut.usual for cut in cuts.values()] == [32, 4, 1, 1, 1]
    assert cuts[1].longest > QWEN3_30B_A3B.max_context > cuts[8].longest == 1024
    for batch_slots, cut in cuts.items():
        assert cut.most <= 64  # kMostPieces
        sizes = activation_bytes(
            QWEN3_30B_A3B, LIMITS, [Shape(StepKind.DECODE, batch_slots, batch_slots)], Chip(132)
        )
        assert sizes["partial"] >= 4 * batch_slots * cut.most * 32 * (128 + 4)
        assert sizes["attention_plan"] >= 32 * (1 + max(batch_slots * cut.most, 131))
    assert cuts[256].most == 9  # of long rows among many: 64 * 131 units in all
