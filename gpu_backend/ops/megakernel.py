"""A decode step of few rows, from embedding to logits, in one kernel (kernels/megakernel/megakernel_sm90.h).

Few rows make a step a stream of weights, which stops at the edges of kernels. The megakernel's warps stream
on through all matrices while its blocks wait for each other's outputs.
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.decode_unit import MIN_SPLIT_KEYS
from gpu_backend.kernel_abi.gemv import GEMV_CHUNK
from gpu_backend.kernel_abi.kv_split_combine import MAX_SPLITS
from gpu_backend.kernel_abi.weight_stream_sm90 import MEGAKERNEL_BLOCK, MEGAKERNEL_WARPS, PASS_TILES
from gpu_backend.megakernel_abi import MEGAKERNEL_SHARED_BYTES, MEGAKERNEL_TOKENS, STAGE_CHUNKS
from gpu_backend.ops.exchange import (
    DECODER_TILE,
    decode_group,
    decoder_group,
    exchange_bytes,
    exchange_parts,
)
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Inside, Launch, Struct
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import DecodeModel

DECODER_HEAD_DIMS = (64, 128)
DECODER_HIDDEN_TILES = PASS_TILES  # of hidden a block has at most: one for each warp
DECODER_SLICE = MEGAKERNEL_WARPS * GEMV_CHUNK  # of k: divides every matrix's columns
DECODER_FEWEST_CHUNKS = 6  # of a stage, if a row has so many: with 5 SkinnyGemm is faster by 17 %
BLOCKS_PER_MULTIPROCESSOR = 4  # what attention aims to fill the GPU with
DECODER_BUFFERS = "<10QI4x"  # blink_megakernel_buffers


def decoder_blocks(op: DecodeModel, target: Target) -> int:
    """One a multiprocessor but the scheduler's, each with a tile of every matrix."""
    least = min(op.hidden, op.heads.width, 2 * op.intermediate, op.logits.columns)
    return min(target.blocks, least // DECODER_TILE)


def stage_chunks(n_in: int) -> int:
    """Chunks of a row that a warp brings at once: as many as divide its share."""
    share = n_in // DECODER_SLICE
    return next(n for n in range(STAGE_CHUNKS, 0, -1) if share % n == 0)


def decode_splits(op: DecodeModel, target: Target) -> int:
    """Blocks among which attention splits a row's keys: enough to fill the GPU with the batch slots' rows."""
    blocks = op.batch_slots * op.heads.kv * ceil_div(op.heads.ratio, decode_group(op.heads))
    wanted = ceil_div(BLOCKS_PER_MULTIPROCESSOR * target.multiprocessors, blocks)
    return max(1, min(wanted, MAX_SPLITS, ceil_div(op.max_context, MIN_SPLIT_KEYS)))


class Megakernel:
    name = "megakernel"

    def suits(self, op: DecodeModel, target: Target) -> str | None:
        """Its tiles must fit every matrix exactly, its stages keep the memory busy, a block's warps hold its
        part of the residual, and what it writes before its norm is known fit a bfloat16."""
        columns = (op.hidden, op.heads.q * op.heads.dim, op.intermediate)
        if op.batch_slots > MEGAKERNEL_TOKENS:
            return f"{op.batch_slots} rows, and it is for up to {MEGAKERNEL_TOKENS}"
        if op.beyond:
            return f"it has no {op.beyond}"
        if op.element is not Element.BF16:
            return f"what it writes before its norm is known might overflow {op.element.dtype}"
        if op.heads.dim not in DECODER_HEAD_DIMS:
            return f"head_dim is {op.heads.dim}, it must be one of {', '.join(map(str, DECODER_HEAD_DIMS))}"
        if any(n % DECODER_SLICE for n in columns):
            return f"the matrices' columns are {columns}, not all multiples of {DECODER_SLICE}"
        if any(stage_chunks(n) < min(DECODER_FEWEST_CHUNKS, n // DECODER_SLICE) for n in columns):
            return f"of {columns} columns, stages would be too small to keep the memory busy"
        if op.logits.columns % DECODER_TILE:
            return f"the vocabulary is {op.logits.columns}, no multiple of {DECODER_TILE}"
        if op.hidden > DECODER_TILE * DECODER_HIDDEN_TILES * decoder_blocks(op, target):
            return "its blocks cannot hold the residual"
        return None

    def launches(self, op: DecodeModel, target: Target) -> list[Launch]:
        instance = f"{op.element.cpp}, {op.heads.dim}, {decoder_group(op.heads)}"
        blocks = decoder_blocks(op, target)
        operands = (FromStep.STEP_SET, FromStep.TABLES, FromStep.DECODER_MODEL, decoder_buffers(op, target))
        return [
            Launch(
                f"megakernel_kernel<{instance}>",
                (blocks, 1, 1),
                (MEGAKERNEL_BLOCK, 1, 1),
                operands,
                shared_bytes=MEGAKERNEL_SHARED_BYTES,
            )
        ]


def decoder_buffers(op: DecodeModel, target: Target) -> Struct:
    """blink_megakernel_buffers, field by field."""
    blocks = decoder_blocks(op, target)
    exchange = Buffer("exchange", 1, exchange_bytes(op, blocks), Element.U8)
    leavers = Buffer("leavers", 1, 1, Element.U32)
    parts = exchange_parts(op, blocks)
    places, offset = [], 0
    for name, size in parts.items():
        if name != "second norm":
            places.append(Inside(exchange, offset))
        offset += size
    sizes = (parts["second norm"], offset)
    return Struct(DECODER_BUFFERS, (*places, *sizes, op.logits, leavers, decode_splits(op, target)))
