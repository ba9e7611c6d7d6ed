"""Rows of a verify step (E27) over the arrays of a step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from reference_ops import StepData

from gpu_backend import abi
from gpu_backend.abi import Emit


def verify(step: StepData, chunks: Sequence[tuple[int, int, int]]) -> None:
    """Makes `step` one in which the tokens of each chunk (sequence, first position, end position) are rows:
    one that is known, and drafts behind it."""
    sizes = [end - first for _, first, end in chunks]
    n, ends = sum(sizes), np.cumsum(sizes)
    for name in ("n_tokens", "batch_size", "n_decode"):
        step.head[name] = n
    step.token_sequence = np.repeat([sequence for sequence, _, _ in chunks], sizes).astype(np.uint32)
    step.batch_sequence = step.token_sequence
    step.token_position = np.concatenate([np.arange(*chunk[1:]) for chunk in chunks]).astype(np.uint32)
    step.batch_first = np.repeat(ends - sizes, sizes).astype(np.uint32)
    step.batch_last = np.arange(n, dtype=np.uint32)
    step.batch_emit = np.full(n, Emit.CHECKED, np.uint32)
    step.batch_emit[ends - 1] = Emit.TOKEN
    step.out_token = np.zeros(n, np.uint32)
    step.out_logprobs = np.zeros((n, abi.LOGPROB_WORDS), np.uint64)
    for name in abi.StepSet.names or ():
        step.step_set[name] = getattr(step, name).ctypes.data
