"""Kernels of operations that one kernel serves whatever the sizes: gate, embedding, norms, RoPE, gathers,
copies of pages."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.page_copy import COPY_BLOCKS, COPY_THREADS
from gpu_backend.ops.attention import LayerAttention, Rope
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import FromStep, Launch, Operand, instantiated, row_block
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import (
    AddNorm,
    CopyPages,
    Embed,
    Gate,
    GatherLast,
    GatherNorm,
    Quantize,
    RmsNorm,
)
from gpu_backend.ops.quantize import group_block
from gpu_backend.ops.weights import SCALE_FORMS

ROPE_ELEMENTS = 16  # of a head, a thread
MAX_BLOCK = 1024


class Always:
    """A kernel that suits every operation of its kind."""

    def suits(self, op: object, target: Target) -> str | None:
        return None


class GateKernel(Always):
    name = "gate"

    def launches(self, op: Gate, target: Target) -> list[Launch]:
        """Nothing of a step starts before its gate opens (E2)."""
        operands = (FromStep.STEP_SET, FromStep.TABLES)
        return [Launch("gate_kernel<>", (1, 1, 1), (1, 1, 1), operands, overlap=False)]


class CopyPagesKernel(Always):
    name = "copy_pages"

    def launches(self, op: CopyPages, target: Target) -> list[Launch]:
        """It starts when the gate has ended, as it does not wait by itself."""
        cache, parts = op.cache, 2 * op.cache.layers
        places = (cache.address, cache.host_address, cache.pages, parts, cache.page_bytes // parts)
        operands = (FromStep.STEP_SET, FromStep.TABLES, *places)
        return [
            Launch("copy_pages_kernel<>", (COPY_BLOCKS, 1, 1), (COPY_THREADS, 1, 1), operands, overlap=False)
        ]


class EmbedKernel(Always):
    name = "embed"

    def launches(self, op: Embed, target: Target) -> list[Launch]:
        hidden = op.out.columns
        operands = (FromStep.STEP_SET, FromStep.TABLES, op.table, op.out, hidden, op.scale)
        return [_rows(f"embed_kernel<{op.table.element.cpp}>", op.out, operands)]


class RmsNormKernel(Always):
    name = "rmsnorm"

    def launches(self, op: RmsNorm, target: Target) -> list[Launch]:
        if op.quantize is not None:
            return [_in_fp8("rmsnorm", (op.x, op.norm.weight, op.norm.eps), op.x, op.quantize)]
        operands = (op.x, op.norm.weight, op.norm.eps, op.out, op.x.columns)
        if op.adds is not None:
            return [_rows(f"rmsnorm_adding_kernel<{op.out.element.cpp}>", op.x, (*operands, op.adds))]
        return [_rows(f"rmsnorm_kernel<{op.out.element.cpp}>", op.x, operands)]


class AddNormKernel(Always):
    name = "add_rmsnorm"

    def launches(self, op: AddNorm, target: Target) -> list[Launch]:
        after = None if op.norm_after is None else op.norm_after.weight
        if (to := op.quantize) is not None:
            rows = (op.residual, op.x, op.norm.weight, after, op.norm.eps)
            return [_in_fp8("add_rmsnorm", rows, op.x, to)]
        operands = (op.residual, op.x, op.norm.weight, after, op.norm.eps, op.normed, op.x.columns)
        return [_rows(f"add_rmsnorm_kernel<{op.x.element.cpp}>", op.x, operands)]


class GatherNormKernel(Always):
    name = "gather_rmsnorm"

    def launches(self, op: GatherNorm, target: Target) -> list[Launch]:
        operands = (FromStep.STEP_SET, op.x, op.norm.weight, op.norm.eps, op.out, op.x.columns)
        return [_rows(f"gather_rmsnorm_kernel<{op.out.element.cpp}>", op.out, operands)]


class GatherLastKernel(Always):
    name = "gather_last"

    def launches(self, op: GatherLast, target: Target) -> list[Launch]:
        sizes = (op.residual.columns, op.attention.columns)
        operands = (FromStep.STEP_SET, op.residual, op.attention, op.to_residual, op.to_attention, *sizes)
        return [_rows(f"gather_last_kernel<{op.attention.element.cpp}>", op.to_residual, operands)]


class RopeKernel(Always):
    name = "rope"

    def launches(self, op: Rope, target: Target) -> list[Launch]:
        return [rope_launch(op.of, op.of.qkv.rows, decodes=False)]


def rope_launch(of: LayerAttention, tokens: int, decodes: bool) -> Launch:
    """Of the first `tokens`: those of prompts, or of sequences that decode."""
    heads = of.heads
    lanes = 1 << (heads.dim // ROPE_ELEMENTS - 1).bit_length()  # of a warp, for a head
    threads = max((heads.q + 2 * heads.kv) * lanes, heads.dim // 2)
    operands = (FromStep.STEP_SET, FromStep.TABLES, of.qkv, of.q_norm, of.k_norm, of.eps)
    caches = (of.reach.rope, of.cache.keys(of.layer), of.cache.values(of.layer))
    half, grows = of.qkv.element.cpp, of.reach.growth is not None
    choices = ((bool(of.bias), False), (of.cache.element.cpp, half), (grows, False))
    last = (of.bias, of.scales.key, of.scales.value, int(decodes), *of.reach.growth_operands)
    return Launch(
        instantiated("rope_kernel", half, heads.dim, choices=choices),
        (tokens, 1, 1),
        (min(MAX_BLOCK, 32 * ceil_div(threads, 32)), 1, 1),
        (*operands, *caches, heads.q, heads.kv, *last),
    )


def _in_fp8(kernel: str, operands: tuple[Operand, ...], x: Buffer, to: Quantize) -> Launch:
    """A norm of half type `to.x` that is left in fp8, a block for each row of x."""
    instance = f"{kernel}_quantize_kernel<{to.x.element.cpp}, {SCALE_FORMS[to.form]}>"
    all_operands = (*operands, to.out, to.scales, x.columns, to.scales.columns)
    return Launch(instance, (x.rows, 1, 1), group_block(x.columns), all_operands)


def _rows(kernel: str, rows: Buffer, operands: tuple[Operand, ...]) -> Launch:
    """A block for each of `rows`."""
    return Launch(kernel, (rows.rows, 1, 1), row_block(rows.columns, MAX_BLOCK), operands)
