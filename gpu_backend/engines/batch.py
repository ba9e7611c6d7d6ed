"""Allocates what scheduler and engine share: the tables and the step sets of kernels/step.h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpu_backend import abi
from gpu_backend.abi import GRAMMAR_STATES
from gpu_backend.engines.base import Batch, Limits, Memory, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from ringbuffer.abi import Descriptor
from ringbuffer.extents import most_control_words
from ringbuffer.grammar_abi import GrammarState

LINE = 128  # bytes


def allocate_batch(
    memory: Memory,
    limits: Limits,
    shapes: Sequence[Shape],
    vocab_size: int,
    eos_ids: Sequence[int],
    recent_processors: int = 0,
) -> Batch:
    """Zeroed arrays in `memory`, which owns them. At most abi.MAX_EOS end ids. `recent_processors`: a bit for
    each logits processor that changes only recent tokens' logits.

    The arrays of a step set are one block in the order that blink_step_set says.
    """
    tables = np.zeros((), abi.Tables)
    tables["history"] = memory.allocate(4 * limits.n_sequences * limits.max_context)
    tables["block_table"] = memory.allocate(4 * limits.n_sequences * limits.pages_per_sequence)
    tables["params"] = memory.allocate(Descriptor.itemsize * limits.n_sequences)
    tables["control_words"] = most_control_words(vocab_size)
    tables["controls"] = memory.allocate(4 * limits.n_sequences * most_control_words(vocab_size))
    tables["completed"] = memory.allocate(8)
    if limits.grammar_words:
        tables["grammars"] = memory.allocate(4 * limits.grammar_words)
        tables["grammar_at"] = memory.allocate(4 * limits.n_sequences)
        n_states = limits.n_sequences * GRAMMAR_STATES
        tables["grammar_states"] = memory.allocate(GrammarState.itemsize * n_states)
    for name in ("n_sequences", "max_context", "pages_per_sequence", "page_size"):
        tables[name] = getattr(limits, name)
    tables["vocab_size"], tables["n_processors"] = vocab_size, limits.processors
    tables["recent_processors"] = recent_processors
    tables["n_eos"] = len(eos_ids)
    tables["eos"][: len(eos_ids)] = eos_ids

    n_tokens = max(shape.tokens for shape in shapes)
    batch_size = max(shape.batch_slots for shape in shapes)
    sets = np.zeros(abi.STEP_SETS, abi.StepSet)
    tokens, batch_slots = rounded(4 * n_tokens), rounded(4 * batch_size)
    sizes = {"token_sequence": tokens, "token_position": tokens}
    sizes |= dict.fromkeys(("batch_sequence", "batch_first", "batch_last", "batch_emit"), batch_slots)
    sizes |= {"head": abi.StepHead.itemsize, "out_token": batch_slots}
    sizes |= {"out_logprobs": rounded(8 * abi.LOGPROB_WORDS * batch_size)}
    for step_set in sets:
        address = memory.allocate(sum(sizes.values()))
        for name, size in sizes.items():
            step_set[name] = address
            address += size
    return Batch(tables, sets)


def store_processors(memory: Memory, batch: Batch, addresses: Sequence[int]) -> None:
    """The logits processors of an engine that calls them: the addresses of their functions."""
    array = np.array(addresses, np.uint64)
    np.asarray(batch.tables)["processors"] = address = memory.allocate(array.nbytes)
    memory.write(address, array.tobytes())


def mirror(memory: Memory, limits: Limits, grid: GraphGrid, batch: Batch) -> Batch:
    """Arrays like those of an engine's `batch`, in host memory: what a host-driven scheduler works on."""
    tables = np.asarray(batch.tables)
    eos_ids = tables["eos"][: int(tables["n_eos"])].tolist()
    return allocate_batch(memory, limits, grid.shapes, int(tables["vocab_size"]), eos_ids)


def restart(memory: Memory, batch: Batch) -> None:
    """Makes `batch` ready for a scheduler that counts its steps from 1 again. Nothing may be running."""
    memory.write(int(np.asarray(batch.tables)["completed"]), bytes(8))


def rounded(n_bytes: int) -> int:
    """Up to whole lines, so that no two arrays share one."""
    return -(-n_bytes // LINE) * LINE
