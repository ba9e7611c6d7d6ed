"""The exchange: the scratch memory through which the megakernel's blocks pass results to each other
(kernels/megakernel/arguments.h)."""

from __future__ import annotations

from gpu_backend.kernel_abi.gemv import GEMV_ROWS
from gpu_backend.megakernel_abi import MEGAKERNEL_TOKENS
from gpu_backend.ops.attention import Heads
from gpu_backend.ops.operations import DecodeModel

MEGAKERNEL_TILE = GEMV_ROWS  # rows of a tile of a matrix; every matrix's rows are a multiple
MAX_GROUP = 8
MAX_MEGAKERNEL_GROUP = 4  # the scratch of 8 would cost the megakernel a stage of its weight pipelines


def decode_group(heads: Heads) -> int:
    """Query heads that a block of decode attention serves: those of a KV head, to a power of two up to 8."""
    return min(MAX_GROUP, 1 << (heads.ratio - 1).bit_length())


def megakernel_group(heads: Heads) -> int:
    """Query heads that a block of the megakernel's attention serves."""
    return min(MAX_MEGAKERNEL_GROUP, decode_group(heads))


def exchange_parts(op: DecodeModel, blocks: int) -> dict[str, int]:
    """The bytes of each part of a layer's exchange, in order: two norms' squares and normed, then the
    rest."""
    tokens, halves = MEGAKERNEL_TOKENS, op.element.n_bytes * MEGAKERNEL_TOKENS
    norm = {"squares": 4 * tokens * (op.hidden // MEGAKERNEL_TILE), "normed": halves * op.hidden}
    return norm | {
        "second norm": sum(norm.values()),
        "qkv": halves * op.heads.width,
        "attention": halves * op.heads.q * op.heads.dim,
        "product": halves * op.intermediate,
        "parts": 4 * blocks * megakernel_group(op.heads) * (op.heads.dim + 4),
    }


def exchange_bytes(op: DecodeModel, blocks: int) -> int:
    """The bytes of the exchange of all layers and the head, for `blocks` blocks."""
    return (op.layers + 1) * sum(exchange_parts(op, blocks).values())
