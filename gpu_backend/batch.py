"""Allocates what scheduler and engine share: the tables and the step sets of kernels/step.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_backend import abi
from gpu_backend.engine.base import Batch, Limits, Memory, Shape
from ringbuffer.abi import Descriptor


def allocate_batch(
    memory: Memory, limits: Limits, shapes: Sequence[Shape], vocab_size: int, eos_ids: Sequence[int]
) -> Batch:
    """Zeroed arrays in `memory`, which owns them. At most abi.MAX_EOS end ids."""
    tables = np.zeros((), abi.Tables)
    tables["history"] = memory.allocate(4 * limits.max_batch * limits.max_context)
    tables["block_table"] = memory.allocate(4 * limits.max_batch * limits.pages_per_row)
    tables["params"] = memory.allocate(Descriptor.itemsize * limits.max_batch)
    tables["completed"] = memory.allocate(8)
    for name in ("max_batch", "max_context", "pages_per_row", "page_size"):
        tables[name] = getattr(limits, name)
    tables["vocab_size"] = vocab_size
    tables["n_eos"] = len(eos_ids)
    tables["eos"][: len(eos_ids)] = eos_ids

    n_tokens = max(shape.tokens for shape in shapes)
    n_lanes = max(shape.lanes for shape in shapes)
    sets = np.zeros(abi.STEP_SETS, abi.StepSet)
    for step_set in sets:
        step_set["head"] = memory.allocate(abi.StepHead.itemsize)
        for name in ("token_row", "token_position"):
            step_set[name] = memory.allocate(4 * n_tokens)
        for name in ("lane_row", "lane_first", "lane_last", "lane_emit", "out_token"):
            step_set[name] = memory.allocate(4 * n_lanes)
    return Batch(tables, sets)
