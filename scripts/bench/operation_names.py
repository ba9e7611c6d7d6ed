"""What the benchmark calls a launch: by its matrix where there is one, else by its kernel."""

from __future__ import annotations

import re

from bench.step_costs import LAST

from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.launch import LibraryGemm, Work
from gpu_backend.ops.operations import DecodeModel, MatMul, Moe, Role

GEMMS = ("gemv", "skinny_gemm", "tiled_gemm")  # kernels of a router that is a matmul
BEHIND = ("silu_mul", "split_sums")  # kernels that a matmul has behind it
PARTS = {"kGateUp": "gate_up", "kDown": "down", "kLongDown": "down"}  # of the experts' kernels


def operation_name(choice: Choice, work: Work, tokens: int) -> str:
    """`tokens` of the step: the last layer's matmuls have fewer rows where those are the batch slots'."""
    op = choice.op
    kernel = "cublas" if isinstance(work, LibraryGemm) else kernel_name(work.kernel)
    if isinstance(op, DecodeModel):
        return choice.name
    if isinstance(op, Moe) and (kernel == "cublas" or kernel in GEMMS):
        return f"router ({kernel})"
    if not isinstance(op, MatMul) or kernel in BEHIND:
        return kernel
    last = LAST if op.m != tokens and op.role is not Role.HEAD else ""
    return f"{last}{op.role.value} ({choice.name})"


def kernel_name(instance: str) -> str:
    """Of "moe_gemv_kernel<__half, blink::kDown, blink::kRoutingGiven>": "moe_gemv_down"."""
    name = re.sub(r"_kernel(<.*>)?$", "", instance)
    parts = [part for constant, part in PARTS.items() if f"blink::{constant}" in instance]
    return "_".join([name, *parts])
