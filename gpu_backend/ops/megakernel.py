"""A decode step of few rows, from embedding to logits, in one kernel (kernels/megakernel/megakernel_sm90.h).

A step of few rows takes as long as reading the weights does, and with one kernel per operation the reading
stops wherever a kernel ends. The megakernel's warps go on reading, through all matrices, while its blocks
wait for each other's outputs.
"""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.decode_unit import MIN_SPLIT_KEYS
from gpu_backend.kernel_abi.gemv import GEMV_CHUNK, GEMV_ROWS
from gpu_backend.kernel_abi.kv_split_combine import MAX_SPLITS
from gpu_backend.kernel_abi.weight_stream_sm90 import (
    BOX_GRAIN,
    MEGAKERNEL_BLOCK,
    MEGAKERNEL_WARPS,
    PASS_TILES,
)
from gpu_backend.megakernel_abi import (
    CODE_STAGE_BYTES,
    CODE_STAGE_CHUNKS,
    MEGAKERNEL_SHARED_BYTES,
    MEGAKERNEL_TOKENS,
    STAGE_CHUNKS,
)
from gpu_backend.models.quantization import Form, GroupForm, ScaleForm
from gpu_backend.ops.attention import cache_type
from gpu_backend.ops.exchange import (
    MEGAKERNEL_TILE,
    decode_group,
    exchange_bytes,
    exchange_parts,
    megakernel_group,
)
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Inside, Launch, Struct
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import DecodeModel
from gpu_backend.ops.weights import form_name, scales_of

MEGAKERNEL_HEAD_DIMS = (64, 128)
MEGAKERNEL_HIDDEN_TILES = PASS_TILES  # a block has at most so many tiles of the residual: one for each warp
# The k of one chunk for each warp of a block, in words; it divides every matrix's.
MEGAKERNEL_SLICE = MEGAKERNEL_WARPS * GEMV_CHUNK
# Of a stage without codes, if a warp has so many: with 5 SkinnyGemm is faster by 17 %.
MEGAKERNEL_FEWEST_CHUNKS = 6
# Of codes, against what a warp needs of a row: so much 8B's down reads, and was timed with.
MEGAKERNEL_MOST_READ = 8 / 7
BLOCKS_PER_MULTIPROCESSOR = 4  # what attention aims to fill the GPU with
MEGAKERNEL_BUFFERS = "<10QI4x"  # blink_megakernel_buffers


def megakernel_blocks(op: DecodeModel, target: Target) -> int:
    """The blocks of the grid: one for each multiprocessor but the scheduler's, each with a tile of every
    matrix."""
    least = min(op.hidden, op.heads.width, 2 * op.intermediate, op.logits.columns)
    return min(target.blocks, least // MEGAKERNEL_TILE)


def word_columns(form: Form | None) -> int:
    """Columns of a matrix in a word of 16 bits, by which the kernel counts them."""
    if isinstance(form, GroupForm):
        return 4
    return 1 if form is None else 2


def stage_chunks(columns: int, form: Form | None = None) -> int:
    """Chunks of a row of w that a warp's stage brings: the most that divide the warp's share of the row. Of
    codes, as many as the fewest stages need that bring the share; the last one may have fewer."""
    share = share_chunks(columns, form)
    if not isinstance(form, GroupForm):
        return _divisor(share, STAGE_CHUNKS)
    sizes = range(CODE_STAGE_CHUNKS, 0, -1)
    most = next(n for n in sizes if code_tile_bytes(n, columns, form) <= CODE_STAGE_BYTES)
    return ceil_div(share, ceil_div(share, most))


def share_chunks(columns: int, form: Form | None) -> int:
    """A warp's, of a row of w."""
    return columns // word_columns(form) // MEGAKERNEL_SLICE


def has_small_stages(columns: int, form: Form | None) -> bool:
    """Whether a stage is smaller than a warp's share of a row allows. Of codes, whose stages are all small,
    two are requested at once."""
    fewest = min(MEGAKERNEL_FEWEST_CHUNKS, share_chunks(columns, form))
    return not isinstance(form, GroupForm) and stage_chunks(columns, form) < fewest


def reads_too_much(columns: int, form: Form | None) -> bool:
    """Whether stages of codes that do not divide a warp's share of a row would bring much beside it."""
    share, stage = share_chunks(columns, form), stage_chunks(columns, form)
    return ceil_div(share, stage) * stage > MEGAKERNEL_MOST_READ * share


def head_chunks(hidden: int, form: Form | None) -> int:
    """Those of the head, which is of halves, in a model whose layers' matrices have a form."""
    most = CODE_STAGE_CHUNKS if isinstance(form, GroupForm) else STAGE_CHUNKS
    return _divisor(hidden // MEGAKERNEL_SLICE, most)


def _divisor(share: int, most: int) -> int:
    return next(n for n in range(most, 0, -1) if share % n == 0)


def code_tile_bytes(chunks: int, columns: int, form: GroupForm) -> int:
    """What a stage of so many chunks has of a tile of codes."""
    return GEMV_ROWS * (2 * GEMV_CHUNK * chunks + scale_box_bytes(chunks, columns, form))


def scale_box_bytes(chunks: int, columns: int, form: GroupForm) -> int:
    """Of a row of such a stage: its scales, and what is missing to what a box can have. Where the scales of
    stages do not begin where boxes can, that is also what may lie before them."""
    scales = chunk_scale_bytes(form)
    begins_there = (chunks * scales | share_chunks(columns, form) * scales) % BOX_GRAIN == 0
    return ceil_div(chunks * scales + (0 if begins_there else BOX_GRAIN - scales), BOX_GRAIN) * BOX_GRAIN


def chunk_scale_bytes(form: Form | None) -> int:
    """Those of a row's scales for a chunk of codes; 0 without codes."""
    if not isinstance(form, GroupForm):
        return 0
    return scales_of(form, 1, GEMV_CHUNK * word_columns(form), 0).n_bytes


def decode_splits(op: DecodeModel, target: Target) -> int:
    """The blocks over which attention splits a sequence's keys: enough to fill the GPU with all batch
    slots."""
    blocks = op.batch_slots * op.heads.kv * ceil_div(op.heads.ratio, decode_group(op.heads))
    wanted = ceil_div(BLOCKS_PER_MULTIPROCESSOR * target.multiprocessors, blocks)
    return max(1, min(wanted, MAX_SPLITS, ceil_div(op.max_context, MIN_SPLIT_KEYS)))


class Megakernel:
    name = "megakernel"

    def suits(self, op: DecodeModel, target: Target) -> str | None:
        """Its tiles must fit every matrix exactly, its stages keep the memory busy, a block's warps hold its
        part of the residual, and what it writes before its norm is known fit a bfloat16."""
        columns = (op.hidden, op.heads.q * op.heads.dim, op.intermediate)
        if target.beyond_hopper:
            return target.beyond_hopper
        if op.batch_slots > MEGAKERNEL_TOKENS:
            return f"{op.batch_slots} rows, and it is for up to {MEGAKERNEL_TOKENS}"
        if op.beyond:
            return f"it has no {op.beyond}"
        if op.element is not Element.BF16:
            return f"what it writes before its norm is known might overflow {op.element.dtype}"
        if op.heads.dim not in MEGAKERNEL_HEAD_DIMS:
            return (
                f"head_dim is {op.heads.dim}, it must be one of {', '.join(map(str, MEGAKERNEL_HEAD_DIMS))}"
            )
        form = op.weight_scales
        if form is ScaleForm.BLOCK:
            return "it scales the sums of whole rows of fp8 weights, not of blocks"
        grain = MEGAKERNEL_SLICE * word_columns(form)
        if any(n % grain for n in columns):
            return f"the matrices' columns are {columns}, not all multiples of {grain}"
        if any(has_small_stages(n, form) for n in columns):
            return f"of {columns} columns, stages would be too small to keep the memory busy"
        if any(reads_too_much(n, form) for n in columns):
            return f"of {columns} columns, uneven stages would read more than an eighth in vain"
        if op.logits.columns % MEGAKERNEL_TILE:
            return f"the vocabulary is {op.logits.columns}, no multiple of {MEGAKERNEL_TILE}"
        if op.hidden > MEGAKERNEL_TILE * MEGAKERNEL_HIDDEN_TILES * megakernel_blocks(op, target):
            return "its blocks cannot hold the residual"
        return None

    def launches(self, op: DecodeModel, target: Target) -> list[Launch]:
        sizes = f"{op.element.cpp}, {op.heads.dim}, {megakernel_group(op.heads)}"
        instance = f"{sizes}{cache_type(op.cached)}"
        if op.weight_scales is not None:
            instance = f"{sizes}, {op.cached.cpp}, {form_name(op.weight_scales)}"
        blocks = megakernel_blocks(op, target)
        operands = (
            FromStep.STEP_SET,
            FromStep.TABLES,
            FromStep.MEGAKERNEL_MODEL,
            megakernel_buffers(op, target),
        )
        return [
            Launch(
                f"megakernel_kernel<{instance}>",
                (blocks, 1, 1),
                (MEGAKERNEL_BLOCK, 1, 1),
                operands,
                shared_bytes=MEGAKERNEL_SHARED_BYTES,
            )
        ]


def megakernel_buffers(op: DecodeModel, target: Target) -> Struct:
    """blink_megakernel_buffers, field by field."""
    blocks = megakernel_blocks(op, target)
    exchange = Buffer("exchange", 1, exchange_bytes(op, blocks), Element.U8)
    leavers = Buffer("leavers", 1, 1, Element.U32)
    parts = exchange_parts(op, blocks)
    places, offset = [], 0
    for name, size in parts.items():
        if name != "second norm":
            places.append(Inside(exchange, offset))
        offset += size
    sizes = (parts["second norm"], offset)
    return Struct(MEGAKERNEL_BUFFERS, (*places, *sizes, op.logits, leavers, decode_splits(op, target)))
