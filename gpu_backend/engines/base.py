"""What every engine offers: a loaded model that runs steps of a grid of shapes over fixed buffers.

The design is in kernels/step.h. Who runs the steps differs: the GPU's own scheduler launches those of a
GraphEngine, a host thread calls those of a CalledEngine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import StepKind

MIXED_SHARE = 128  # prompt tokens below which a mixed step saves less than its fixed costs
INVARIANT_ROWS = 64  # of the one shape of decode steps, where answers are not to depend on their number
FEWEST_VERIFY_ROWS = 6  # of fewer a dense model's matmuls take longer than of 6, as verify_sizes() says
MOST_VERIFY_ROWS = 256  # beyond these, sampling takes longer than the drafts save
MIXED_TOKENS = 1024  # of a mixed step, unless sequences that decode leave prompts less than their share


@dataclass(frozen=True)
class Limits:
    """Capacities fixed at start-up. All counts; `page_size` in tokens, a power of two."""

    max_batch: int
    max_context: int
    max_prefill_tokens: int
    max_prefill_slots: int
    page_size: int
    total_pages: int
    mixed_share: int = MIXED_SHARE  # of prompts in a mixed step, at least (S15); 0: the engine's choice
    prefix_cache: bool = True  # pages outlive their requests, for prompts that begin alike (S16)
    attention_keys: int = 0  # keys that double the cost of a prompt's token (S15); 0: no number does
    target_itl_ns: int = 0  # that a step takes at most beside sequences that decode, if it can (S15); 0: none
    min_itl_ns: int = 0  # that steps without prompts begin apart, at least (S25); 0: one begins at once
    host_pages: int = 0  # pages in host memory, beside total_pages on the device (S19)
    copied_pages: int = 0  # between the two by one step, at most
    priorities: bool = False  # requests with a lower priority come before others (S2)
    grammar_words: int = 0  # of all grammars in device memory, 4 bytes each (S21); 0: none is taken
    kv_fp8: bool = False  # keys and values are cached in fp8, else in the model's half type
    batch_invariant: bool = False  # decode steps of up to INVARIANT_ROWS rows are all of one shape
    max_drafts: int = 0  # tokens of a sequence that a step checks beside the known one; 0: no speculation
    longest_match: int = 0  # tokens, behind whose earlier place drafts are looked up
    shortest_match: int = 0
    drafts_per_matched_token: float = 0.0  # for each of its tokens, where several places vote; 0: none do
    least_share: float = 0.0  # of the places, that has to agree with a draft then
    acceptance: tuple[float, ...] = ()  # of drafts, by chance; empty: they are compared
    processors: int = 0  # logits processors that requests may ask for
    copied_share: float = 0.0  # of answers' tokens that are made to repeat the prompt, for measurements

    @property
    def n_sequences(self) -> int:
        """Rows in memory: those that run together, and a prefill step's worth of requests that are next."""
        return self.max_batch + self.max_prefill_slots

    @property
    def max_verify_rows(self) -> int:
        """Tokens of a step that checks drafts; 0 where there are none."""
        if not self.max_drafts:
            return 0
        if self.batch_invariant:  # in a larger one, a row's bits may be others
            return INVARIANT_ROWS
        wanted = min(MOST_VERIFY_ROWS, self.max_batch * (1 + self.max_drafts))
        return max(self.max_batch, FEWEST_VERIFY_ROWS, wanted)

    @property
    def max_mixed_tokens(self) -> int:
        """Of a step of sequences that decode and prompts: there is room for both."""
        most = self.max_batch + self.max_prefill_tokens
        return min(most, max(MIXED_TOKENS, self.max_batch + self.mixed_share))

    @property
    def max_step_tokens(self) -> int:
        """Of any step."""
        invariant = INVARIANT_ROWS if self.batch_invariant else 0
        return max(self.max_prefill_tokens, self.max_mixed_tokens, self.max_verify_rows, invariant)

    @property
    def pages_per_sequence(self) -> int:
        return -(-self.max_context // self.page_size)


@dataclass(frozen=True)
class Shape:
    """One captured graph: at most `tokens` tokens fed and `batch_slots` rows sampled (blink_shape)."""

    kind: StepKind
    tokens: int
    batch_slots: int
    verifies: bool = False  # a sequence that decodes may have several tokens (E27)


@dataclass(frozen=True)
class Batch:
    """Addresses of the structures that scheduler and engine share (kernels/step.h), in the engine's memory.

    `tables` and `step_sets` are host copies of blink_tables and blink_step_set (numpy records of
    gpu_backend.abi.Tables and StepSet), whose pointers are device addresses.
    """

    tables: object
    step_sets: object


class Memory(Protocol):
    """The memory that an engine computes in: the GPU's, or the host's for the reference engine."""

    def allocate(self, n_bytes: int) -> int: ...

    def write(self, address: int, data: bytes | memoryview) -> None: ...

    def read(self, address: int, n_bytes: int) -> bytes: ...

    def close(self) -> None: ...


class EngineError(RuntimeError):
    """The engine cannot be built; says why and what to do."""


class Engine(Protocol):
    """A loaded model. Shapes are indices into the grid it was built for, step sets are 0 to STEP_SETS - 1."""

    def run(self, shape: int, step_set: int) -> None:
        """Runs one step to its end, from the host; never beside a scheduler."""
        ...

    def logits(self, batch_slots: int) -> NDArray[np.float32]:
        """The last step's logits [batch slots, vocab_size]."""
        ...

    def close(self) -> None:
        """Releases everything. No step may be running, and the scheduler must have ended."""
        ...


class GraphEngine(Engine, Protocol):
    """An engine whose steps are CUDA graphs, which a scheduler launches by their handles."""

    @property
    def executables(self) -> NDArray[np.uint64]:
        """CUgraphExec handles [n_shapes, STEP_SETS], instantiated for launches from the device."""
        ...


class CalledEngine(Engine, Protocol):
    """An engine whose steps are calls of a C function (void* context, uint32_t shape, uint32_t step_set).

    One thread calls it, one step at a time, and each call returns when its step is done.
    """

    @property
    def run_address(self) -> int:
        """The function's address in this process."""
        ...

    @property
    def context_address(self) -> int:
        """What the function takes as its context."""
        ...
