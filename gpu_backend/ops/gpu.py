"""A GPU as a model's kernels see it: its size and speed, and how they share a multiprocessor's memory.

That memory is divided into L1 and the shared memory of blocks, anew only when the multiprocessor is idle,
which is never between kernels that overlap. So all launches of a step ask for the same division (E23): where
they did not, kernels that load weights of experts to registers, and are slow where L1 is small, ran with what
the kernel before had left, at 2/3 of their speed.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.cuda.chip import FIRST_WITH_OVERLAP, HOPPER, Capability, Chip
from gpu_backend.cuda.driver import ALL_SHARED_BYTES

BESIDE_L1_SHARED_BYTES = 132 << 10  # where kernels need L1


@dataclass(frozen=True)
class Gpu:
    """What kernels reach in a second: `read_bytes_s` of its memory, `half_flops` floating-point operations
    in a half type. Of the H200 as measured; of the H100's memory the same share of what is advertised."""

    name: str
    multiprocessors: int
    memory_bytes: int
    read_bytes_s: float
    half_flops: float

    @property
    def chip(self) -> Chip:
        return Chip(self.multiprocessors)


H200 = Gpu("H200", 132, 141 * 10**9, 4.5e12, 780e12)
H100 = Gpu("H100", 132, 80 * 10**9, 3.1e12, 780e12)
GPUS = {"h100": H100, "h200": H200}


@dataclass(frozen=True)
class Rooms:
    """Bytes that a block of a skinny GEMM may have. The more copies are in flight the better, but not all
    clusters of more than two blocks find room unless two blocks fit a multiprocessor."""

    large: int
    small: int


ALL = Rooms(222 << 10, 113 << 10)
BESIDE_L1 = Rooms(128 << 10, 64 << 10)


@dataclass(frozen=True)
class Target:
    """A GPU and the facts about a model and a step that the choice of kernels depends on, beside an
    operation's own.

    `has_experts`: the model's layers have them. `gemv_rows`: up to which Gemv beats what else there is,
    the head apart. `shared_bytes`: that the step's launches ask a multiprocessor to divide off its
    L1 (E23).
    """

    multiprocessors: int
    has_experts: bool = False
    gemv_rows: int = 0
    capability: Capability = HOPPER
    shared_bytes: int = ALL_SHARED_BYTES

    @property
    def beyond_hopper(self) -> str | None:
        """Why a kernel that needs Hopper's instructions or shared memory does not serve, or None."""
        if self.capability == HOPPER:
            return None
        major, minor = self.capability
        return f"it is made for compute capability 9.0, and this GPU has {major}.{minor}"

    @property
    def overlaps(self) -> bool:
        """Whether a kernel can start before its predecessor has ended, and blocks can form clusters."""
        return self.capability >= FIRST_WITH_OVERLAP

    @property
    def blocks(self) -> int:
        """Multiprocessors that a step's kernels have: one is the scheduler's."""
        return self.multiprocessors - 1

    @property
    def keeps_l1(self) -> bool:
        """Whether a kernel of the step needs L1."""
        return self.shared_bytes < ALL_SHARED_BYTES

    def rooms(self, ends_step: bool) -> Rooms:
        """Of a matmul. So much does the head gain from all the memory there is that its blocks may wait until
        their multiprocessor is idle, and divides its memory anew."""
        return BESIDE_L1 if self.keeps_l1 and not ends_step else ALL
