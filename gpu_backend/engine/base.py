"""What every engine offers: executables for a grid of shapes over fixed buffers (design: kernels/step.h)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from gpu_backend.abi import StepKind

MIXED_SHARE = 128  # prompt tokens below which a mixed step saves less than its fixed costs
MIXED_TOKENS = 1024  # of a mixed step, unless rows that decode leave prompts less than their share


@dataclass(frozen=True)
class Limits:
    """Capacities fixed at start-up. All counts; `page_size` in tokens, a power of two."""

    max_batch: int
    max_context: int
    max_prefill_tokens: int
    max_prefill_lanes: int
    page_size: int
    total_pages: int
    mixed_share: int = MIXED_SHARE  # of prompts in a mixed step, at least (S15)

    @property
    def n_rows(self) -> int:
        """Rows in memory: those that run together, and a prefill step's worth of requests that are next."""
        return self.max_batch + self.max_prefill_lanes

    @property
    def max_mixed_tokens(self) -> int:
        """Of a step of rows that decode and prompts: there is room for both."""
        most = self.max_batch + self.max_prefill_tokens
        return min(most, max(MIXED_TOKENS, self.max_batch + self.mixed_share))

    @property
    def max_step_tokens(self) -> int:
        """Of any step."""
        return max(self.max_prefill_tokens, self.max_mixed_tokens)

    @property
    def pages_per_row(self) -> int:
        return -(-self.max_context // self.page_size)


@dataclass(frozen=True)
class Shape:
    """One captured graph: at most `tokens` tokens fed and `lanes` rows sampled (blink_shape)."""

    kind: StepKind
    tokens: int
    lanes: int


@dataclass(frozen=True)
class Batch:
    """Addresses of the structures that scheduler and engine share (kernels/step.h), in the engine's memory.

    `tables` and `step_sets` are host copies of blink_tables and blink_step_set (numpy records of
    gpu_backend.abi.Tables and StepSet), whose pointers are device addresses.
    """

    tables: object
    step_sets: object


class Memory(Protocol):
    """The memory that an engine computes in: the GPU's, or the host's for the host engine."""

    def allocate(self, n_bytes: int) -> int: ...

    def write(self, address: int, data: bytes | memoryview) -> None: ...

    def read(self, address: int, n_bytes: int) -> bytes: ...

    def close(self) -> None: ...
