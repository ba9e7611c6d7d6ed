"""Attention of the sequences that decode, with RoPE and the KV write
(kernels/ops/attention/decode_attention_sm90.h).

In a step that verifies drafts, a kernel in front of it writes the keys and values of all rows
(kernels/ops/attention/append_kv.h).

The cached keys of a sequence are divided into KV splits, as in flash-decoding: one block attends to one split
at a time, and the results of the splits are combined. A plan, which is made once a step, hands the splits to
the blocks (kernels/ops/attention/attention_plan.h).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.tensor_map import TENSOR_MAP_BYTES
from gpu_backend.element import Element
from gpu_backend.kernel_abi.append_kv import APPEND_THREADS
from gpu_backend.kernel_abi.attention_plan import SPLIT_PLAN_THREADS, KvSplit
from gpu_backend.kernel_abi.decode_unit_sm90 import (
    ATTENTION_SHARED_BYTES,
    ATTENTION_THREADS,
    GROWING_QUERIES,
    LARGEST_WIDE_HEAD,
    SINKS,
    UNIT_HEADS,
    WIDE_UNIT_HEADS,
    WIDE_UNIT_ROWS,
)
from gpu_backend.kernel_abi.kv_split_combine import MAX_SPLITS
from gpu_backend.ops.attention import DecodeAttention, DecodePlan, Heads, Reach
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch, instantiated
from gpu_backend.ops.matrix import Buffer

KV_SPLIT_BYTES = KvSplit.itemsize
PART_WORDS = 4  # a split's partial result has these beside its head_dim elements

LEAST_KEYS = 128  # that a split has, unless it is the last of its sequence
LONGEST_KEYS = 1024  # that a split has if there are other sequences, which would have to wait
MIXED_SPLITS = 2  # the fewest that are aimed at for a sequence in a mixed step


@dataclass(frozen=True)
class KvSplitLimits:
    """How decode attention divides a sequence's cached keys into splits: the struct KvSplitLimits of
    kernels/ops/attention/attention_plan.h, field by field."""

    usual: int
    least: int
    longest: int
    most: int

    @property
    def words(self) -> bytes:
        """The structure by value."""
        return struct.pack("<4I", self.usual, self.least, self.longest, self.most)


def unit_heads(heads: Heads, verifies: bool) -> int:
    """Query heads of a unit at most. Those of a step that verifies are wide, unless the rows that a wide unit
    has room for fit another one, too, or heads are too large."""
    gains = WIDE_UNIT_ROWS * heads.ratio > UNIT_HEADS and heads.dim <= LARGEST_WIDE_HEAD
    return WIDE_UNIT_HEADS if verifies and gains else UNIT_HEADS


def sharing_rows(heads: Heads) -> int:
    """Rows of a sequence that may share splits in a step that verifies: as many as a unit has query heads
    for, and room for their new keys."""
    width = unit_heads(heads, verifies=True)
    room = WIDE_UNIT_ROWS if width == WIDE_UNIT_HEADS else UNIT_HEADS
    return max(1, min(room, width // heads.ratio))


def kv_split_limits(op: DecodePlan | DecodeAttention, heads: Heads, target: Target) -> KvSplitLimits:
    """The limits for a shape.

    There are enough splits to give every block one; they are short enough that the blocks end together, and
    few enough that combining them takes no time. In a mixed shape fewer than `batch_slots` may decode, and in
    one that verifies rows may share splits.
    """
    batch_slots = op.batch_slots
    units = ceil_div(batch_slots, sharing_rows(heads) if op.verifies else 1)
    units *= heads.kv * ceil_div(heads.ratio, unit_heads(heads, op.verifies))
    longest = LONGEST_KEYS if batch_slots > 1 else 1 << 31
    most = min(MAX_SPLITS, max(4, ceil_div(MAX_SPLITS * target.blocks, units)))
    usual = max(MIXED_SPLITS if op.mixed else 1, target.blocks // units)
    return KvSplitLimits(usual, LEAST_KEYS, longest, most)


def plan_buffers(
    op: DecodePlan | DecodeAttention, heads: Heads, reach: Reach, target: Target
) -> tuple[Buffer, Buffer]:
    """The plan's buffer of splits, and the (cos, sin) of RoPE [batch_slots][head_dim / 2][2], of one
    reach."""
    suffix = f"_{reach.index}" if reach.index else ""
    splits = op.batch_slots * kv_split_limits(op, heads, target).most
    records = 1 + max(splits, target.multiprocessors)
    return (
        Buffer("attention_plan" + suffix, records, KV_SPLIT_BYTES, Element.U8),
        Buffer("turns" + suffix, op.batch_slots, 2 * (heads.dim // 2), Element.FP32),
    )


class OnHopper:
    def suits(self, op: object, target: Target) -> str | None:
        return target.beyond_hopper


class PlanDecode(OnHopper):
    name = "decode_plan"

    def launches(self, op: DecodePlan, target: Target) -> list[Launch]:
        limits = kv_split_limits(op, op.heads, target)
        plan, turns = plan_buffers(op, op.heads, op.reach, target)
        blocks = 1 + ceil_div(op.batch_slots * (op.heads.dim // 2), SPLIT_PLAN_THREADS)
        window, sharing = op.reach.window, sharing_rows(op.heads) if op.verifies else 1
        sizes = (op.heads.dim, window or 0, sharing)
        choices = ((bool(window), False), (op.verifies, False))
        operands = (FromStep.STEP_SET, limits.words, plan, op.reach.rope, turns, *sizes)
        return [
            Launch(
                instantiated("attention_plan_kernel", choices=choices),
                (blocks, 1, 1),
                (SPLIT_PLAN_THREADS, 1, 1),
                operands,
                shared_bytes=8 * op.batch_slots,
            )
        ]


class StreamAttention(OnHopper):
    name = "decode_attention"

    def launches(self, op: DecodeAttention, target: Target) -> list[Launch]:
        stream = self._stream(op, target)
        return [_append(op, target), stream] if op.verifies else [stream]

    def _stream(self, op: DecodeAttention, target: Target) -> Launch:
        of, heads = op.of, op.of.heads
        limits = kv_split_limits(op, heads, target)
        plan, turns = plan_buffers(op, heads, of.reach, target)
        parts = op.batch_slots * limits.most * heads.q
        partial = Buffer("partial", parts, heads.dim + PART_WORDS, Element.FP32)
        maps = of.cache.maps + TENSOR_MAP_BYTES * of.layer
        inputs = (FromStep.TABLES, plan, turns, maps, of.qkv, of.q_norm, of.k_norm, of.eps)
        caches = (of.cache.keys(of.layer), of.cache.values(of.layer))
        window = of.reach.window
        outputs = (partial, of.out, heads.kv, heads.ratio, limits.most, of.bias, window or 0)
        scales = (of.scales.key, of.scales.value)
        half, width = of.qkv.element.cpp, unit_heads(heads, op.verifies)
        extras = (GROWING_QUERIES if of.reach.growth else 0) + (SINKS if of.sinks else 0)
        choices = (
            (bool(of.bias), False),
            (bool(window), False),
            (of.cache.element.cpp, half),
            (op.verifies, False),
            (width, UNIT_HEADS),
            (extras, 0),
        )
        return Launch(
            instantiated("decode_attention_kernel", half, heads.dim, choices=choices),
            (target.blocks, 1, 1),
            (ATTENTION_THREADS, 1, 1),
            (*inputs, *caches, *outputs, *scales, *of.reach.growth_operands, of.sinks),
            shared_bytes=ATTENTION_SHARED_BYTES,
        )


def _append(op: DecodeAttention, target: Target) -> Launch:
    """The keys and values of all rows, a block for each of them."""
    of, heads = op.of, op.of.heads
    _, turns = plan_buffers(op, heads, of.reach, target)
    half, choices = of.qkv.element.cpp, ((bool(of.bias), False), (of.cache.element.cpp, of.qkv.element.cpp))
    caches = (of.cache.keys(of.layer), of.cache.values(of.layer))
    inputs = (FromStep.STEP_SET, FromStep.TABLES, turns, of.qkv, of.k_norm, of.eps)
    return Launch(
        instantiated("append_kv_kernel", half, heads.dim, choices=choices),
        (op.batch_slots, 1, 1),
        (min(APPEND_THREADS, 32 * 2 * heads.kv), 1, 1),
        (*inputs, *caches, heads.q, heads.kv, of.bias, of.scales.key, of.scales.value),
    )
