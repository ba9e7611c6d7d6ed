"""How the keys of prompts' units are divided into parts in shapes of few tokens."""

from __future__ import annotations

import pytest

from gpu_backend.element import Element
from gpu_backend.ops.attention import Heads, LayerAttention, PrefillAttention, PrefillPlan, Reach
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, KvCache, Matrix
from gpu_backend.ops.prefill_attention import PART_KEYS

TARGET = Target(132)
LLAMA_8B, QWEN_30B, WIDE = Heads(32, 8, 128), Heads(32, 4, 128), Heads(40, 40, 128)
MOST_BYTES = 10 << 20


def launches(heads: Heads, tokens: int, batch_slots: int = 8) -> tuple[Launch, Launch]:
    """The plan's and attention's."""
    cache = KvCache(2, 64, 16, heads.kv, heads.dim, Element.BF16)
    qkv = Buffer("qkv", 4096, heads.width, Element.BF16)
    out = Buffer("attention", tokens, heads.q * heads.dim, Element.BF16)
    reach = Reach(0, Matrix(1, heads.dim, Element.FP32), window=None)
    of = LayerAttention(heads, reach, 1, cache, qkv, out, None, None, 1e-6, None)
    plan = choose(PrefillPlan(tokens, batch_slots, heads), TARGET)
    attention = choose(PrefillAttention(tokens, of, after_decode=True), TARGET)
    works = [*plan.launches, *attention.launches]
    assert len(works) == 2
    assert all(isinstance(work, Launch) for work in works)
    return works[0], works[1]


def scratch(launch: Launch) -> dict[str, Buffer]:
    return {buffer.name: buffer for buffer in launch.buffers if buffer.name.startswith("prefill_")}


@pytest.mark.parametrize(
    ("heads", "tokens", "most"),
    [
        (LLAMA_8B, 64, 8),  # 2 tiles of 32 tokens, 8 KV heads
        (LLAMA_8B, 128, 4),
        (LLAMA_8B, 160, 3),
        (LLAMA_8B, 256, 2),
        (LLAMA_8B, 320, 1),
        (QWEN_30B, 64, 8),  # 4 tiles of 16 tokens, 4 KV heads
        (QWEN_30B, 16, 32),
        (WIDE, 64, 3),
        (WIDE, 256, 1),
    ],
)
def test_units_have_parts_as_far_as_blocks_have_no_other_work(heads: Heads, tokens: int, most: int) -> None:
    plan, attention = launches(heads, tokens)
    assert plan.operands[-2:] == (PART_KEYS, most)
    assert attention.operands[-2] == most


@pytest.mark.parametrize("heads", [LLAMA_8B, QWEN_30B, WIDE])
@pytest.mark.parametrize("tokens", [16, 32, 48, 64, 128, 160, 192, 256, 320, 1024])
def test_what_parts_leave_takes_little_memory(heads: Heads, tokens: int) -> None:
    """And none where units have no parts."""
    plan, attention = launches(heads, tokens)
    buffers = scratch(attention)
    if attention.operands[-2] == 1:
        assert list(buffers) == ["prefill_plan"]
        assert attention.operands[-4:-2] == (None, None)
        return
    assert set(buffers) == {"prefill_plan", "prefill_parts", "prefill_arrivals"}
    assert sum(buffer.n_bytes for buffer in buffers.values()) <= MOST_BYTES
    assert scratch(plan)["prefill_plan"].n_bytes >= buffers["prefill_plan"].n_bytes


def test_the_plan_has_room_for_the_parts_of_every_unit() -> None:
    """Two full units, and one that is not full of each batch slot."""
    plan, _ = launches(LLAMA_8B, 64, batch_slots=5)
    assert scratch(plan)["prefill_plan"].rows == 1 + (2 + 5) * 8
