"""The reference engine under test: its driver, and transformers as its oracle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from engine_driver import Chunk, EngineDriver
from numpy.typing import NDArray

from gpu_backend.engines.base import Limits
from gpu_backend.engines.reference import HostMemory, ReferenceEngine
from gpu_backend.models.quantization import Form
from gpu_backend.models.registry import read_model
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.layout import as_stored

LIMITS = Limits(
    max_batch=12,
    max_context=256,
    max_prefill_tokens=128,
    max_prefill_slots=4,
    page_size=16,
    total_pages=192,
    host_pages=32,
    copied_pages=16,
    max_drafts=3,
)
TOLERANCE = 1e-3


class Rig:
    """An engine, its driver, and the oracle."""

    def __init__(
        self,
        directory: Path,
        oracle: Any,
        limits: Limits = LIMITS,
        threads: int = 2,
        form: Form | None = None,
    ) -> None:
        """`form`: weights are rounded so while they are loaded."""
        self.oracle = oracle
        checkpoint = Checkpoint(directory)
        config = as_stored(read_model(directory, form), checkpoint)
        self.memory = HostMemory()
        self.driver = EngineDriver(self.memory, limits, config.vocab_size)
        self.engine = ReferenceEngine(
            config, checkpoint, limits, self.driver.grid.shapes, self.driver.batch, threads
        )
        self.driver.run = self.engine.run
        self.vocab_size = config.vocab_size

    def expected(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        with torch.no_grad():
            return np.asarray(self.oracle(torch.tensor([tokens])).logits[0, -1].float().numpy())

    def check(self, fed: Sequence[tuple[int, int]]) -> None:
        """`fed`: for each batch slot of the last step its row and how many of the row's tokens were fed so
        far."""
        self._compare([self.driver.tokens[row][:n] for row, n in fed])

    def _compare(self, fed: Sequence[Sequence[int]]) -> None:
        """The tokens that each batch slot of the last step has behind it."""
        for tokens, got in zip(fed, self.engine.logits(len(fed)), strict=True):
            expected = self.expected(tokens)
            error = np.abs(got - expected).max() / np.abs(expected).max()
            assert error < TOLERANCE, f"after {len(tokens)} tokens: relative error {error:.2e}"

    def prefill(self, chunks: Sequence[Chunk]) -> list[int | None]:
        tokens = self.driver.prefill(chunks)
        self.check([(row, end) for row, _, end in chunks])
        return tokens

    def decode(self, rows: Sequence[int]) -> None:
        before = [len(self.driver.tokens[row]) for row in rows]
        tokens = self.driver.decode(rows)
        self.check(list(zip(rows, before, strict=True)))
        assert tokens == [int(batch_slot.argmax()) for batch_slot in self.engine.logits(len(rows))]

    def mixed(self, rows: Sequence[int], chunks: Sequence[Chunk]) -> None:
        before = [(row, len(self.driver.tokens[row])) for row in rows]
        self.driver.mixed(rows, chunks)
        self.check([*before, *((row, end) for row, _, end in chunks)])

    def verify(self, drafts: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Behind a wrong draft, too, the logits are those of the tokens that were fed."""
        known = [(self.driver.tokens[row].copy(), of_row) for row, of_row in drafts]
        fed = [[*tokens, *of_row[:i]] for tokens, of_row in known for i in range(len(of_row) + 1)]
        sampled = self.driver.verify(drafts)
        self._compare(fed)
        best = [int(logits.argmax()) for logits in self.engine.logits(len(fed))]
        assert [token for of_row in sampled for token in of_row] == best

    def prompt(self, n: int, seed: int) -> list[int]:
        return list(np.random.default_rng(seed).integers(3, self.vocab_size, n))

    def close(self) -> None:
        self.engine.close()
        self.memory.close()
