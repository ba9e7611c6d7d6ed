"""Neighbours of a step that one kernel serves become one operation.

    norm, qkv             -> qkv of the residual, where a kernel norms on the way
    matmul, experts       -> the matmul also computes the router's logits, where kernels for one token suit
    experts, norm         -> the experts' sum leaves its norm
    add norm, norm        -> the sum with a normed output leaves its own norm
    norm, quantisation    -> the norm is left in fp8 alone
    matmul, norm, matmul  -> each matmul has a part of the norm (E19), and the first may bring weights of the
                             second to L2, where SkinnyGemm serves both

Each is done where the choice finds the kernels for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpu_backend.ops.choice import serves
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.moe_one import router_sums
from gpu_backend.ops.operations import (
    AddNorm,
    FusedRouter,
    MatMul,
    Moe,
    Operation,
    Quantize,
    RmsNorm,
    SumsOfSquares,
)
from gpu_backend.ops.quantize import fits_block
from gpu_backend.ops.skinny_gemm import sums_of

Rule = Callable[[list[Operation], Target], list[Operation] | None]


def fused(step: list[Operation], target: Target) -> list[Operation]:
    """The step with its neighbours fused, rule by rule."""
    for length, rule in RULES:
        at = 0
        while at < len(step):
            if (made := rule(step[at : at + length], target)) is not None:
                step = step[:at] + made + step[at + length :]
            at += 1
    return step


def norm_in_matmul(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [RmsNorm(adds=None) as norm, MatMul() as matmul] if matmul.x == norm.out:
            both = replace(matmul, x=norm.x, norm=norm.norm)
            return [both] if serves("resident_gemv", both, target) else None
    return None


def router_in_matmul(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [MatMul() as matmul, Moe() as moe] if matmul.out == moe.residual:
            part = FusedRouter(moe.norm, moe.router, router_sums(moe.routing.count))
            first, second = replace(matmul, router=part), replace(moe, routed=True)
            both = serves("resident_gemv", first, target) and serves("moe_one", second, target)
            return [first, second] if both else None
    return None


def norm_after_moe(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [Moe() as moe, RmsNorm() as norm] if not moe.routed and norm.x == moe.residual:
            return [replace(moe, norm_after=norm.norm, adds=norm.adds)]
    return None


def norm_after_add(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [AddNorm() as add, RmsNorm(adds=None) as norm] if (
            norm.x == add.residual and norm.out == add.normed
        ):
            return [replace(add, norm_after=norm.norm)]
    return None


def quantize_after_norm(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [RmsNorm(adds=None) as norm, Quantize() as quantize] if quantize.x == norm.out:
            return [replace(norm, quantize=quantize)] if fits_block(quantize.x.columns) else None
        case [AddNorm() as add, Quantize() as quantize] if add.norm_after and quantize.x == add.normed:
            return [replace(add, quantize=quantize)] if fits_block(quantize.x.columns) else None
    return None


def norm_between_matmuls(ops: list[Operation], target: Target) -> list[Operation] | None:
    match ops:
        case [MatMul() as before, RmsNorm(adds=None) as norm, MatMul() as after] if (
            before.out == norm.x and after.x == norm.out
        ):
            if not all(serves("skinny_gemm", matmul, target) for matmul in (before, after)):
                return None  # another family is faster, with the norm between
            sums = sums_of(before, target)
            part = SumsOfSquares(norm.norm, norm.out, sums, sums.rows)
            second = replace(after, takes=part)
            parts: list[Operation] = [replace(before, leaves=part, ahead=second), second]
            return parts if all(serves("skinny_gemm", matmul, target) for matmul in parts) else None
    return None


RULES: tuple[tuple[int, Rule], ...] = (
    (2, norm_in_matmul),
    (2, router_in_matmul),
    (2, norm_after_moe),
    (2, norm_after_add),
    (2, quantize_after_norm),
    (3, norm_between_matmuls),
)
