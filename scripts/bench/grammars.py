#!/usr/bin/env python3
"""What grammars cost the sampler: a step's rows, each with a grammar of its own, against rows without.

    scripts/bench/grammars.py --rows 1 8 64 128 --vocab 151936
    scripts/bench/grammars.py --rows 32 64 --hidden 4096

Each grammar is one of JSON objects (grammar_samples.py). The rows stand where a kind of thing is expected, or
(`mixed`) each anywhere in its object. The sampler is replayed alone, where nothing hides its mask; with
--hidden behind the matmul that makes the logits, as in a step, where it can begin while that ends.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.grammar_samples import Document, document, vocabulary  # noqa: E402
from bench.sampler_step import SAMPLING, Result, SamplerStep, measure_all  # noqa: E402

from gpu_backend.abi import GRAMMAR_STATES  # noqa: E402
from gpu_backend.cuda.driver import Device  # noqa: E402
from gpu_backend.engines.vocabulary import vocabulary_arrays  # noqa: E402
from ringbuffer.grammar import Walk  # noqa: E402
from ringbuffer.grammar_abi import GrammarState  # noqa: E402

KINDS = ("structure", "key", "string", "number", "name", "choice", "mixed")


class SamplerBench:
    """The sampler of one step of `rows` sequences that decode, over random logits."""

    def __init__(self, device: Device, table: list[bytes], rows: int, hidden: int = 0) -> None:
        self.rows, self.table = rows, table
        self.documents = [document(seed) for seed in range(rows)]
        blocks = [np.frombuffer(doc.grammar.pack(), np.uint32) for doc in self.documents]
        self.at = np.cumsum([0, *(-(-len(block) // 32) * 32 for block in blocks)]).astype(np.uint32)
        self.step = SamplerStep(device, rows, len(table), int(self.at[-1]), hidden)
        for name, array in vocabulary_arrays(table).items():
            self.step.tables["vocabulary"][name] = self.step.put(array)
        for at, block in zip(self.at, blocks, strict=False):
            self.step.write("grammars", block, 4 * int(at))
        self.step.write("grammar_at", self.at[:-1])
        self.step.compile()

    def measure(self, kind: str | None, sampling: dict[str, float]) -> float:
        """Microseconds. Kind None: no row has a grammar."""
        params = self.step.params(**sampling)
        states = np.zeros((self.rows, GRAMMAR_STATES), GrammarState)
        last = np.zeros(self.rows, np.uint32)
        if kind is not None:
            params["grammar_words"] = np.diff(self.at)
            for row, doc in enumerate(self.documents):
                last[row] = self._stand(doc, kind, row, states[row, 0])
        self.step.write("grammar_states", states)
        return self.step.measure(params, last)

    def _stand(self, doc: Document, kind: str, row: int, state: NDArray[np.void]) -> int:
        """Brings a row where it is to stand: the state before its last byte, and the token of that byte."""
        where = random.Random(row).randrange(1, len(doc.text)) if kind == "mixed" else max(1, doc.marks[kind])
        walk = Walk(doc.grammar)
        assert walk.step_all(doc.text[: where - 1])
        state["state"] = walk.state
        return self.table.index(doc.text[where - 1 : where])

    def close(self) -> None:
        self.step.close()


def measured(device: Device, rows: int, vocab: int, hidden: int) -> list[Result]:
    bench, results = SamplerBench(device, vocabulary(vocab), rows, hidden), []
    for name, sampling in SAMPLING.items():
        plain = bench.measure(None, sampling)
        results.append(Result(rows, name, "none", plain, 0.0))
        for kind in KINDS:
            us = bench.measure(kind, sampling)
            results.append(Result(rows, name, kind, us, us - plain))
    bench.close()
    return results


if __name__ == "__main__":
    measure_all(__doc__, "grammars", measured)
