"""The ops' CPU references (kernels/reference/reference_ops.cpp) on numpy arrays, and the structures that they
read."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.host_library import host_library
from ringbuffer.abi import Descriptor
from ringbuffer.extents import Controls, most_control_words

Floats = NDArray[np.float32]
NO_GROWTH = (0.0, 1)  # beta and context of QueryGrowth (kernels/ops/attention/rope.h)
SILU, GELU_TANH, CLAMPED_SWIGLU = 0, 1, 2  # Activation of kernels/ops/activation.h


def rope_table(head_dim: int, magnitude: float = 1.0, rotated: int = 0) -> Floats:
    """[head_dim / 2] of RopePair: `rotated` of the head's dimensions turn, 0 for all, with that magnitude."""
    rotated = rotated or head_dim
    table = np.zeros((head_dim // 2, 2), np.float32)
    table[:, 1] = 1
    table[: rotated // 2, 0] = 1 / 10000.0 ** (np.arange(0, rotated, 2) / rotated)
    table[: rotated // 2, 1] = magnitude
    return table


class StepData:
    """A step and its tables over numpy arrays: change the arrays, then call references.

    `chunks` are (row, first position, end position), one batch slot each; `padding` tokens follow them.
    """

    def __init__(
        self,
        chunks: Sequence[tuple[int, int, int]],
        *,
        vocab_size: int = 64,
        max_batch: int = 8,
        max_context: int = 128,
        page_size: int = 16,
        total_pages: int = 64,
        padding: int = 0,
        eos: Sequence[int] = (),
        seed: int = 0,
        n_decode: int = 0,
    ) -> None:
        rng = np.random.default_rng(seed)
        pages_per_sequence = -(-max_context // page_size)
        assert max_batch * pages_per_sequence <= total_pages
        n_tokens = sum(end - first for _, first, end in chunks)
        self.history = rng.integers(0, vocab_size, (max_batch, max_context), np.uint32)
        pages = rng.permutation(total_pages)[: max_batch * pages_per_sequence]
        self.block_table = pages.reshape(max_batch, pages_per_sequence).astype(np.uint32)
        self.params = np.zeros(max_batch, Descriptor)
        self.params["top_p"] = self.params["repetition_penalty"] = 1
        self.completed = np.zeros(1, np.uint64)
        self.head = np.zeros(1, abi.StepHead)
        self.head["n_tokens"], self.head["batch_size"] = n_tokens, len(chunks)
        self.head["n_decode"] = n_decode
        rows = [row for row, first, end in chunks for _ in range(first, end)]
        self.token_sequence = np.array(rows + [abi.NO_SEQUENCE] * padding, np.uint32)
        positions = [p for _, first, end in chunks for p in range(first, end)]
        self.token_position = np.array(positions + [0] * padding, np.uint32)
        self.batch_sequence = np.array([row for row, _, _ in chunks], np.uint32)
        ends = np.cumsum([end - first for _, first, end in chunks])
        self.batch_first = (ends - [end - first for _, first, end in chunks]).astype(np.uint32)
        self.batch_last = (ends - 1).astype(np.uint32)
        self.batch_emit = np.ones(len(chunks), np.uint32)
        self.out_token = np.zeros(len(chunks), np.uint32)
        self.out_logprobs = np.zeros((len(chunks), abi.LOGPROB_WORDS), np.uint64)
        self.controls = np.zeros((max_batch, most_control_words(vocab_size)), np.uint32)
        self.tables = self._record(abi.Tables)
        self.step_set = self._record(abi.StepSet)
        for name, value in (
            ("n_sequences", max_batch),
            ("max_context", max_context),
            ("pages_per_sequence", pages_per_sequence),
            ("page_size", page_size),
            ("vocab_size", vocab_size),
            ("control_words", self.controls.shape[1]),
            ("n_eos", len(eos)),
        ):
            self.tables[name] = value
        self.tables["eos"][: len(eos)] = eos

    def _record(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """A structure whose pointers are these arrays, by their names."""
        record = np.zeros((), dtype)
        for name in dtype.names or ():
            if hasattr(self, name):
                record[name] = getattr(self, name).ctypes.data
        return record

    def control(self, row: int, controls: Controls) -> None:
        """Gives a row's request these controls."""
        self.controls[row, : len(controls.words)] = controls.words
        self.params[row]["flags"] |= controls.flags
        for name in ("n_biases", "ban_words", "n_processors"):
            self.params[row][name] = getattr(controls, name)

    def call(self, reference: str, *arguments: Any) -> None:
        """blink_reference_`reference`(set, tables, *arguments)."""
        call(reference, self.step_set, self.tables, *arguments)

    def sample(self, logits: Floats) -> list[int]:
        """The tokens that the batch slots sample from a copy of `logits` [batch slots, vocab]."""
        self.call("sample", np.array(logits, np.float32))
        return [int(token) for token in self.out_token]


def call(reference: str, *arguments: Any) -> None:
    """blink_reference_`reference` with arrays as pointers, None as null, int as uint32 and float as float."""
    getattr(host_library(), f"blink_reference_{reference}")(*(as_c(argument) for argument in arguments))


def as_c(argument: Any) -> Any:
    if argument is None:
        return ctypes.c_void_p(None)
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    return ctypes.c_float(argument) if isinstance(argument, float) else ctypes.c_uint32(argument)
