"""What decides which kernels a GPU can run: its compute capability.

Hopper's kernels use wgmma and its amount of shared memory. Everything else, the scheduler first, needs what
all of SERVED have; on GPUs other than Hopper the portable kernels serve, which nobody has measured yet
(docs/portability.md).
"""

from __future__ import annotations

import re
from typing import NamedTuple

Capability = tuple[int, int]  # major and minor

HOPPER: Capability = (9, 0)
SERVED: dict[Capability, str] = {
    (8, 9): "Ada: L4, L40S, RTX 40",
    HOPPER: "Hopper: H100, H200, GH200",
    (10, 0): "Blackwell: B200, GB200",
    (12, 0): "Blackwell: RTX 50, RTX PRO",
}
RUN_ON = ("H100", "H200")  # what somebody has run blink on
FIRST_WITH_OVERLAP: Capability = (9, 0)  # programmatic dependent launch, and clusters of blocks


class Chip(NamedTuple):
    """What the choice of kernels must know of a GPU."""

    multiprocessors: int
    capability: Capability = HOPPER


def kernels_for(capability: Capability, name: str) -> str:
    """Which kernels serve on such a GPU, in one line; also where nobody has run them on one of its name."""
    kernels = (
        "those made for Hopper"
        if capability == HOPPER
        else "portable ones, for dense models in bf16 and fp16"
    )
    return kernels if has_run_on(name) else f"{kernels}; nobody has run them on this GPU yet"


def has_run_on(name: str) -> bool:
    """Whether blink has run on a GPU of this name, such as "NVIDIA H200"."""
    return not set(RUN_ON).isdisjoint(re.findall(r"\w+", name))


def served_gpus() -> str:
    """Those that blink serves on, in one line, with what is known of them."""
    others = "; ".join(names for capability, names in SERVED.items() if capability != HOPPER)
    return (
        f"{SERVED[HOPPER]} (it has run on {' and '.join(RUN_ON)} alone); or, with portable kernels "
        f"that nobody has run there yet, {others}"
    )


def arch_of(capability: Capability) -> str:
    """What NVRTC compiles for: "sm_90a", with the instructions that only Hopper has, or "sm_120"."""
    major, minor = capability
    return f"sm_{major}{minor}a" if capability == HOPPER else f"sm_{major}{minor}"
