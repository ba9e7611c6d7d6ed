"""Attention of rows that decode, with its RoPE and KV write (kernels/ops/attention/decode_attention_sm90.h).

Rows are cut into pieces, which a plan hands to the blocks, once a step
(kernels/ops/attention/attention_plan.h).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.tensor_map import TENSOR_MAP_BYTES
from gpu_backend.element import Element
from gpu_backend.kernel_abi.attention_plan import SPLIT_PLAN_THREADS, KvSplit
from gpu_backend.kernel_abi.decode_unit_sm90 import ATTENTION_SHARED_BYTES, ATTENTION_THREADS, UNIT_HEADS
from gpu_backend.kernel_abi.kv_split_combine import MAX_SPLITS
from gpu_backend.ops.elementwise import Always
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import DecodeAttention, DecodePlan, Heads, Reach

PIECE_RECORD = KvSplit.itemsize
PART_WORDS = 4  # of a piece's partial result, beside its head_dim elements

LEAST_KEYS = 128  # of a piece of a row
LONGEST_KEYS = 1024  # of a piece where there are other rows, which would have to wait
MIXED_PIECES = 2  # of a row in a mixed step, at least


@dataclass(frozen=True)
class KvSplitLimits:
    """How decode attention cuts rows into pieces (KvSplitLimits of
    kernels/ops/attention/attention_plan.h)."""

    usual: int
    least: int
    longest: int
    most: int

    @property
    def words(self) -> bytes:
        """The structure by value."""
        return struct.pack("<4I", self.usual, self.least, self.longest, self.most)


def attention_cut(heads: Heads, batch_slots: int, target: Target, mixed: bool = False) -> KvSplitLimits:
    """For a shape of `batch_slots`: pieces enough to give every block one, short enough that blocks end
    together,
    and few enough that combining them takes no time. In a mixed shape fewer than `batch_slots` may decode."""
    units = batch_slots * heads.kv * ceil_div(heads.ratio, UNIT_HEADS)
    longest = LONGEST_KEYS if batch_slots > 1 else 1 << 31
    most = min(MAX_SPLITS, max(4, ceil_div(MAX_SPLITS * target.blocks, units)))
    usual = max(MIXED_PIECES if mixed else 1, target.blocks // units)
    return KvSplitLimits(usual, LEAST_KEYS, longest, most)


def plan_buffers(
    op: DecodePlan | DecodeAttention, heads: Heads, reach: Reach, target: Target
) -> tuple[Buffer, Buffer]:
    """The pieces, and [batch_slots][head_dim / 2][2] of RoPE, of one reach."""
    suffix = f"_{reach.index}" if reach.index else ""
    pieces = op.batch_slots * attention_cut(heads, op.batch_slots, target, op.mixed).most
    records = 1 + max(pieces, target.multiprocessors)
    return (
        Buffer("attention_plan" + suffix, records, PIECE_RECORD, Element.U8),
        Buffer("turns" + suffix, op.batch_slots, 2 * (heads.dim // 2), Element.FP32),
    )


class PlanDecode(Always):
    name = "decode_plan"

    def launches(self, op: DecodePlan, target: Target) -> list[Launch]:
        cut = attention_cut(op.heads, op.batch_slots, target, op.mixed)
        plan, turns = plan_buffers(op, op.heads, op.reach, target)
        blocks = 1 + ceil_div(op.batch_slots * (op.heads.dim // 2), SPLIT_PLAN_THREADS)
        window = op.reach.window
        operands = (FromStep.STEP_SET, cut.words, plan, op.reach.rope, turns, op.heads.dim, window or 0)
        return [
            Launch(
                f"attention_plan_kernel<{'true' if window else ''}>",
                (blocks, 1, 1),
                (SPLIT_PLAN_THREADS, 1, 1),
                operands,
                shared_bytes=8 * op.batch_slots,
            )
        ]


class StreamAttention(Always):
    name = "decode_attention"

    def launches(self, op: DecodeAttention, target: Target) -> list[Launch]:
        of, heads = op.of, op.of.heads
        cut = attention_cut(heads, op.batch_slots, target, op.mixed)
        plan, turns = plan_buffers(op, heads, of.reach, target)
        parts = op.batch_slots * cut.most * heads.q
        partial = Buffer("partial", parts, heads.dim + PART_WORDS, Element.FP32)
        maps = of.cache.maps + TENSOR_MAP_BYTES * of.layer
        inputs = (FromStep.TABLES, plan, turns, maps, of.qkv, of.q_norm, of.k_norm, of.eps)
        caches = (of.cache.keys(of.layer), of.cache.values(of.layer))
        window = of.reach.window
        outputs = (partial, of.out, heads.kv, heads.ratio, cut.most, of.bias, window or 0)
        kinds = f", {cpp_bool(of.bias)}, {cpp_bool(window)}" if of.bias or window else ""
        return [
            Launch(
                f"decode_attention_kernel<{of.qkv.element.cpp}, {heads.dim}{kinds}>",
                (target.blocks, 1, 1),
                (ATTENTION_THREADS, 1, 1),
                (*inputs, *caches, *outputs),
                shared_bytes=ATTENTION_SHARED_BYTES,
            )
        ]


def cpp_bool(value: object) -> str:
    return "true" if value else "false"
