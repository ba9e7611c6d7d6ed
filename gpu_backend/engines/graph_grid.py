"""The grid of captured shapes and the O(1) tables that pick one (paper section 4.2, "Graph cache")."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import StepKind
from gpu_backend.arithmetic import ceil_div
from gpu_backend.engines.base import INVARIANT_ROWS, Limits, Shape
from gpu_backend.scheduler_abi import TOKEN_GRANULE

FINEST_STEP = 64  # tokens between prefill shapes, from 128 tokens on
STEPS_PER_OCTAVE = 8  # prefill shapes to a doubling, where that is coarser
FEW_SLOTS = 64  # of a mixed step: a shape's are all multiplied, and rarely are there the most


def decode_sizes(max_batch: int) -> list[int]:
    """1, 2, 4, 8, 16, 24, 32, 48, 64, ... and always `max_batch` itself."""
    fine = [n for n in (1, 2, 4, 8, 16, 24) if n < max_batch]
    return fine + list(range(32, max_batch, 16)) + [max_batch]


def verify_sizes(max_rows: int) -> list[int]:
    """6, 8, 12, 16, 24, 32, 48, 64, 96, 128, ... and always `max_rows` itself; none where that is 0.

    Of fewer rows a dense model's matmuls take longer than of 6, where another kernel serves them: with 8B
    parameters in bf16 4 rows took 5.2 ms, and 6 took 3.9 (H200, gpu_backend/ops/gemv.py).
    """
    if not max_rows:
        return []
    sizes = sorted(n for k in range(2, 11) for n in (2 << k, 3 << (k - 1)) if n < max_rows)
    return [*sizes, max_rows]


def prefill_sizes(max_tokens: int) -> list[int]:
    """16, 32, 64, 128, 192, ... 512, then eight sizes to a doubling, and always `max_tokens` itself.

    GEMMs run at a shape's capacity, so this is what a step computes for nothing: beyond 512 tokens at most an
    eighth of what it has to. Steps of fewer tokens wait for the weights more than for the products.
    """
    sizes = []
    size = TOKEN_GRANULE
    while size < max_tokens:
        sizes.append(size)
        octave = 1 << (size.bit_length() - 1)
        size += min(size, max(FINEST_STEP, octave // STEPS_PER_OCTAVE))
    return [*sizes, max_tokens]


def mixed_sizes(max_tokens: int) -> list[int]:
    """64, 128, 160, 192, 256, 320, 384, then whole tiles of 128, and always `max_tokens` itself.

    160 takes the least time a prompt token beside 32 rows: with 8B parameters 5 to 10 % less than the others;
    320 is two tiles of 160, and what 64 rows come to whose prompts are four times as long as their answers.
    """
    sizes = [n for n in (64, 128, 160, 192, 256, 320) if n < max_tokens]
    return [*sizes, *range(384, max_tokens, 128), max_tokens]


def mixed_slots(n_tokens: int, n_sequences: int) -> list[int]:
    """Of the mixed shapes of `n_tokens`: few, and as many as there can be."""
    return sorted({min(FEW_SLOTS, n_sequences, n_tokens), min(n_sequences, n_tokens)})


class GraphGrid:
    """Every shape that is captured, and for each count the index of the tightest one.

    `shapes`          decode shapes, then prefill shapes, then mixed shapes; ascending in tokens, then batch
    slots; then those that verify drafts. With pages in host memory, the shape of copy steps is the last one;
    its tokens are pages
    `decode_lookup`   uint32 [max_batch + 1]: rows -> index into `shapes`
    `verify_lookup`   uint32 [max_verify_rows + 1], of shapes that verify; one entry without them
    `prefill_lookup`  uint32 [ceil(max_prefill_tokens / 16) + 1]: ceil(tokens / 16) -> index into `shapes`
    `mixed_lookup`    uint32 [ceil(max_mixed_tokens / 16) + 1] likewise; shapes behind have more batch slots

    A prefill shape of t tokens has min(max_prefill_slots, t) batch slots: a chunk has at least one token, so
    the batch slots of any step that fits its tokens and the limits fit too. Of mixed shapes of t tokens the
    last has max_batch more, or t.

    With `batch_invariant`, steps of up to INVARIANT_ROWS rows, with drafts or without, are all of one shape:
    the same kernels compute a row whatever else is in the step. Decode steps of more rows have no
    drafts.
    """

    def __init__(self, limits: Limits) -> None:
        if min(limits.max_batch, limits.max_prefill_tokens, limits.max_prefill_slots) < 1:
            raise ValueError(
                "max_batch, max_prefill_tokens and max_prefill_slots must be at least 1, got "
                f"{limits.max_batch}, {limits.max_prefill_tokens}, {limits.max_prefill_slots}"
            )
        decode, verify = decode_sizes(limits.max_batch), verify_sizes(limits.max_verify_rows)
        if limits.batch_invariant:
            decode = [n for n in decode if n > INVARIANT_ROWS]
            verify = [INVARIANT_ROWS]
        prefill = prefill_sizes(limits.max_prefill_tokens)
        mixed = mixed_sizes(limits.max_mixed_tokens)
        self.shapes: tuple[Shape, ...] = (
            *(Shape(StepKind.DECODE, n, n) for n in decode),
            *(Shape(StepKind.PREFILL, n, min(limits.max_prefill_slots, n)) for n in prefill),
            *(
                Shape(StepKind.MIXED, n, batch_slots, verifies=limits.max_drafts > 0)
                for n in mixed
                for batch_slots in mixed_slots(n, limits.n_sequences)
            ),
            *(Shape(StepKind.DECODE, n, n, verifies=True) for n in verify),
            *((Shape(StepKind.COPY, limits.copied_pages, 0),) if limits.host_pages else ()),
        )
        sizes = [shape.tokens for shape in self.shapes if shape.kind == StepKind.MIXED]
        self.decode_lookup = _tightest(range(limits.max_batch + 1), decode, 0)
        self.prefill_lookup = _tightest(_granules(prefill[-1]), prefill, len(decode))
        self.mixed_lookup = _tightest(_granules(sizes[-1]), sizes, len(decode) + len(prefill))
        before = len(decode) + len(prefill) + len(sizes)
        self.verify_lookup = _tightest(range(limits.max_verify_rows + 1), verify, before)
        if limits.batch_invariant:
            self.decode_lookup[: INVARIANT_ROWS + 1] = before

    @property
    def copy_shape(self) -> int:
        """Index of the shape of copy steps, if there are any."""
        return len(self.shapes) - 1

    def decode_shape(self, n_sequences: int) -> int:
        """Index of the shape that runs `n_sequences` rows."""
        return int(self.decode_lookup[n_sequences])

    def verify_shape(self, n_tokens: int) -> int:
        """Index of the shape that checks drafts, of `n_tokens` with the known ones."""
        return int(self.verify_lookup[n_tokens])

    def prefill_shape(self, n_tokens: int) -> int:
        """Index of the shape that runs `n_tokens` packed prompt tokens."""
        return int(self.prefill_lookup[ceil_div(n_tokens, TOKEN_GRANULE)])

    def mixed_shape(self, n_tokens: int, batch_size: int) -> int:
        """Index of the shape for sequences that decode and prompts, `batch_size` with `n_tokens` in all."""
        index = int(self.mixed_lookup[ceil_div(n_tokens, TOKEN_GRANULE)])
        while self.shapes[index].batch_slots < batch_size:
            index += 1
        return index


def _granules(most: int) -> list[int]:
    """The counts that the entries of a lookup stand for."""
    return [min(i * TOKEN_GRANULE, most) for i in range(ceil_div(most, TOKEN_GRANULE) + 1)]


def _tightest(counts: Sequence[int], sizes: list[int], first: int) -> NDArray[np.uint32]:
    """For each count the index of the smallest size that holds it, offset by `first`."""
    return (np.searchsorted(sizes, list(counts), side="left") + first).astype(np.uint32)
