"""What an operation must read, write and compute, and the time that a GPU needs for it at least."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_backend.element import Element
from gpu_backend.ops import operations as ops
from gpu_backend.ops.attention import DecodeAttention, LayerAttention, PrefillAttention, Rope
from gpu_backend.ops.gpu import Gpu
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Moe, Operation
from gpu_backend.ops.skinny_cut import SKINNY_MAX_ROWS

FP8_SPEED = 2  # of the tensor cores, against that of halves


@dataclass(frozen=True)
class Load:
    """What fills a step: `rows` that decode with `context` tokens each in the cache, `drafts` of tokens
    behind those of the rows, and `prompts` prompts that share `prompt_tokens`, from their first token on."""

    rows: int
    context: int
    prompts: int
    prompt_tokens: int
    drafts: int = 0


@dataclass(frozen=True)
class Cost:
    """`bytes` of GPU memory that are moved once each, and floating-point operations, of which `fp8_flops`
    are those of fp8 times fp8, at FP8_SPEED times the rate of halves."""

    bytes: float = 0
    flops: float = 0
    fp8_flops: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.bytes + other.bytes, self.flops + other.flops, self.fp8_flops + other.fp8_flops)

    def times(self, n: int) -> Cost:
        return Cost(n * self.bytes, n * self.flops, n * self.fp8_flops)

    def floor_us(self, gpu: Gpu) -> float:
        """Microseconds that `gpu` needs at least."""
        return 1e6 * max(self.bytes / gpu.read_bytes_s, self._compute_s(gpu))

    def bound(self, gpu: Gpu) -> str:
        """What the floor is made of."""
        return "memory" if self.bytes / gpu.read_bytes_s >= self._compute_s(gpu) else "compute"

    def _compute_s(self, gpu: Gpu) -> float:
        return (self.flops - self.fp8_flops + self.fp8_flops / FP8_SPEED) / gpu.half_flops


def cost(op: Operation, load: Load) -> Cost:
    """Of one operation. Activations count as read and written once, though caches may hold them. What a
    DecodeModel costs is told by the operations in whose place it stands."""
    match op:
        case MatMul():
            return _matmul(op)
        case Moe():
            return _moe(op)
        case DecodeAttention(of=of):
            seen, tokens = min(load.context + 1, of.reach.window or load.context + 1), load.rows + load.drafts
            moved = load.rows * seen * _token_bytes(of) + tokens * _row_bytes(of)
            return Cost(moved, 4 * tokens * seen * _query_width(of))
        case PrefillAttention(of=of):
            pairs = load.prompts * _pairs(load.prompt_tokens / max(load.prompts, 1), of.reach.window)
            moved = load.prompt_tokens * (_token_bytes(of) + _row_bytes(of))
            return Cost(moved, 4 * pairs * _query_width(of))
        case Rope(of=of):
            width = of.heads.width * of.qkv.element.n_bytes
            return Cost(load.prompt_tokens * (2 * width + _token_bytes(of)))
        case ops.Embed():
            return Cost(op.out.n_bytes + op.out.rows * op.table.columns * op.table.element.n_bytes)
        case ops.Quantize():
            return Cost(_moved(op.x, op.out, op.scales))
        case ops.RmsNorm(quantize=to) if to is not None:
            return Cost(_moved(op.x, to.out, to.scales, op.norm.weight))
        case ops.RmsNorm() | ops.GatherNorm():
            added = (op.x, op.adds) if isinstance(op, ops.RmsNorm) and op.adds else ()
            x = op.x if isinstance(op, ops.RmsNorm) else op.out
            return Cost(_moved(x, op.out, op.norm.weight, *added))
        case ops.AddNorm():
            left = (
                (op.quantize.out, op.quantize.scales)
                if op.quantize
                else (op.normed,)
                if op.norm_after
                else ()
            )
            return Cost(_moved(op.x, op.norm.weight, op.residual, op.residual, *left))
        case ops.GatherLast():
            return Cost(2 * _moved(op.to_residual, op.to_attention))
        case ops.Sample():
            return Cost(_moved(op.logits))
    return Cost()


def total(step: Iterable[Operation], load: Load) -> Cost:
    """Of a whole step."""
    return sum((cost(op, load) for op in step), Cost())


def _pairs(tokens: float, window: int | None) -> float:
    """Of a prompt's tokens and the keys that each sees."""
    seen = min(tokens, window or tokens)
    return seen * (seen + 1) / 2 + (tokens - seen) * seen


def _moved(*operands: Buffer | Matrix) -> int:
    return sum(operand.n_bytes for operand in operands)


def _matmul(op: MatMul) -> Cost:
    adds = op.epilogue is Epilogue.ADD
    moved = _moved(op.weight, op.x, op.out) + (op.out.n_bytes if adds else 0)
    flops = 2 * op.m * op.weight.rows * op.k
    return Cost(moved, flops, flops * _multiplies_fp8(op.weight, op.m))


def _moe(op: Moe) -> Cost:
    """Of experts, those that as many random choices are expected to name."""
    count, per_token = op.routing.count, op.routing.per_token
    chosen = 1 - (1 - per_token / count) ** op.tokens
    rows = 3 * op.intermediate * op.hidden
    of_experts = (op.gate_up, op.down, *filter(None, (op.gate_up_bias, op.down_bias)))
    moved = chosen * _moved(*of_experts) + _moved(op.router, op.residual, op.residual, op.normed)
    flops = 2 * op.pairs * rows
    router = 2 * op.tokens * count * op.hidden
    return Cost(moved, flops + router, flops * _multiplies_fp8(op.gate_up, op.tokens))


def _multiplies_fp8(weight: Matrix, rows: int) -> bool:
    """Whether so many rows are rounded to fp8, too: fewer multiply by the weights' values in a half type."""
    return weight.element is Element.FP8 and rows > SKINNY_MAX_ROWS


def _token_bytes(of: LayerAttention) -> int:
    """Keys and values of a token."""
    return 2 * of.heads.kv * of.heads.dim * of.cache.element.n_bytes


def _row_bytes(of: LayerAttention) -> int:
    """What attention reads and writes for a token beside them."""
    return (of.heads.width + of.heads.q * of.heads.dim) * of.qkv.element.n_bytes


def _query_width(of: LayerAttention) -> int:
    return of.heads.q * of.heads.dim
