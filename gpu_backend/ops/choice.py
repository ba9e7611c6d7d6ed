"""Chooses the kernels that serve an operation on a GPU, and says why the others do not.

Everything that is compiled, captured and allocated follows from these choices. The conditions of each kernel
family are in its own file, in `suits`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from gpu_backend.ops import attention, elementwise
from gpu_backend.ops import operations as ops
from gpu_backend.ops.candidate import Candidate, Choice, NoKernel
from gpu_backend.ops.cublas import CublasGemm
from gpu_backend.ops.decode_attention import PlanDecode, StreamAttention
from gpu_backend.ops.gemv import Gemv
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Work
from gpu_backend.ops.megakernel import Megakernel
from gpu_backend.ops.moe_one import OneTokenMoe
from gpu_backend.ops.moe_stream import StreamMoe
from gpu_backend.ops.moe_tiled import TiledMoe
from gpu_backend.ops.plain_decode import NoDecodePlan, PlainDecode
from gpu_backend.ops.prefill_attention import FlashAttention, PlainAttention, PlanFlash
from gpu_backend.ops.quantize import QuantizeKernel
from gpu_backend.ops.resident_gemv import ResidentGemv
from gpu_backend.ops.sampling import ClusterSample
from gpu_backend.ops.skinny_gemm import SkinnyGemm
from gpu_backend.ops.tiled_fp8 import TiledFp8Gemm
from gpu_backend.ops.tiled_gemm import TiledGemm
from gpu_backend.ops.unpacked import UnpackedGemm


def choose(op: ops.Operation, target: Target) -> Choice:
    """The first family that suits. Raises NoKernel."""
    refused: list[tuple[str, str]] = []
    for candidate in CANDIDATES[type(op)]:
        reason = candidate.suits(op, target)
        if reason is None:
            launches = tuple(_on(target, work) for work in candidate.launches(op, target))
            return Choice(op, candidate.name, launches, tuple(refused))
        refused.append((candidate.name, reason))
    reasons = "; ".join(f"{name}: {reason}" for name, reason in refused)
    what = f" by {op.role.value} ({op.m} x {op.weight.rows} x {op.k})" if isinstance(op, ops.MatMul) else ""
    raise NoKernel(f"no kernel for {type(op).__name__}{what}: {reasons}")


def _on(target: Target, work: Work) -> Work:
    """As the target has it. Where nothing can overlap, a kernel starts when its predecessor has ended."""
    if not isinstance(work, Launch):
        return work
    divided = min(work.divided, target.shared_bytes)
    return replace(work, overlap=work.overlap and target.overlaps, divided=divided)


def dividing_alike(lower: Callable[[Target], list[Choice]], target: Target) -> list[Choice]:
    """What `lower` makes of a step. All launches ask for the same division of memory (E23), for the least
    shared memory that one of them asks for: others may then need other tiles, so the step is lowered again.

    Raises what `lower` raises.
    """
    step = lower(target)
    asked = divisions(step)
    if asked <= {target.shared_bytes}:
        return step
    again = lower(replace(target, shared_bytes=min(asked)))
    assert divisions(again) == {min(asked)}, "E23"
    return again


def divisions(step: Iterable[Choice]) -> set[int]:
    """The different ones that launches of a step ask for."""
    return {work.divided for choice in step for work in choice.launches if isinstance(work, Launch)}


def serves(name: str, op: ops.Operation, target: Target) -> bool:
    """Whether the choice falls on the family `name`."""
    suited = (one.name for one in CANDIDATES[type(op)] if one.suits(op, target) is None)
    return next(suited, None) == name


# By operation, the fastest first.
CANDIDATES: dict[type[Any], tuple[Candidate, ...]] = {
    ops.MatMul: (
        ResidentGemv(),
        Gemv(),
        SkinnyGemm(),
        TiledFp8Gemm(),
        TiledGemm(),
        CublasGemm(),
        UnpackedGemm(choose),
    ),
    ops.Moe: (OneTokenMoe(), StreamMoe(choose), TiledMoe(choose)),
    attention.DecodePlan: (PlanDecode(), NoDecodePlan()),
    attention.DecodeAttention: (StreamAttention(), PlainDecode()),
    attention.PrefillPlan: (PlanFlash(),),
    attention.PrefillAttention: (FlashAttention(), PlainAttention()),
    ops.DecodeModel: (Megakernel(),),
    ops.Sample: (ClusterSample(),),
    ops.Gate: (elementwise.GateKernel(),),
    ops.CopyPages: (elementwise.CopyPagesKernel(),),
    ops.Embed: (elementwise.EmbedKernel(),),
    ops.Quantize: (QuantizeKernel(),),
    ops.RmsNorm: (elementwise.RmsNormKernel(),),
    ops.AddNorm: (elementwise.AddNormKernel(),),
    attention.Rope: (elementwise.RopeKernel(),),
    ops.GatherLast: (elementwise.GatherLastKernel(),),
    ops.GatherNorm: (elementwise.GatherNormKernel(),),
}
