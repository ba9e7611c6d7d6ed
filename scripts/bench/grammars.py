#!/usr/bin/env python3
"""What grammars cost the sampler: a step's rows, each with a grammar of its own, against rows without.

    scripts/bench/grammars.py --rows 1 8 64 128 --vocab 151936

Each grammar is one of JSON objects (grammar_samples.py). The rows stand where a kind of thing is expected, or
(`mixed`) each anywhere in its object. The sampler is replayed alone, so that its mask is counted whole, which
a step makes while its logits are computed, where there is room: `more` is what it costs at most.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.grammar_samples import Document, document, vocabulary  # noqa: E402
from bench.replay import replayed_us  # noqa: E402

from gpu_backend import abi  # noqa: E402
from gpu_backend.cuda.driver import Device, Stream  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory  # noqa: E402
from gpu_backend.element import Element  # noqa: E402
from gpu_backend.engines.base import Limits, Shape  # noqa: E402
from gpu_backend.engines.batch import allocate_batch  # noqa: E402
from gpu_backend.engines.native.kernels import Kernels  # noqa: E402
from gpu_backend.engines.native.launcher import StepLauncher  # noqa: E402
from gpu_backend.engines.vocabulary import vocabulary_arrays  # noqa: E402
from gpu_backend.ops.choice import choose  # noqa: E402
from gpu_backend.ops.gpu import Target  # noqa: E402
from gpu_backend.ops.launch import Launch  # noqa: E402
from gpu_backend.ops.matrix import Buffer  # noqa: E402
from gpu_backend.ops.operations import Sample  # noqa: E402
from ringbuffer.abi import Descriptor  # noqa: E402
from ringbuffer.grammar import Walk  # noqa: E402
from ringbuffer.grammar_abi import GrammarState  # noqa: E402

KINDS = ("structure", "key", "string", "number", "name", "choice", "mixed")
SAMPLING = {"greedy": {"temperature": 0.0}, "drawn": {"temperature": 0.8, "top_k": 50, "top_p": 0.95}}
CONTEXT = 64


@dataclass(frozen=True)
class Result:
    """Microseconds of the sampler."""

    rows: int
    sampling: str
    kind: str
    us: float
    more: float


class SamplerBench:
    """The sampler of one step of `rows` sequences that decode, over random logits."""

    def __init__(self, device: Device, table: list[bytes], rows: int) -> None:
        self.rows, self.table = rows, table
        self.documents = [document(seed) for seed in range(rows)]
        blocks = [np.frombuffer(doc.grammar.pack(), np.uint32) for doc in self.documents]
        self.at = np.cumsum([0, *(-(-len(block) // 32) * 32 for block in blocks)]).astype(np.uint32)
        limits = Limits(rows, CONTEXT, 64, 1, 16, 64 * rows, grammar_words=int(self.at[-1]))
        self.memory, self.stream, vocab = DeviceMemory(device), Stream(), len(table)
        shapes = (Shape(abi.StepKind.DECODE, rows, rows),)
        self.batch = allocate_batch(self.memory, limits, shapes, vocab, (vocab - 1,))
        self.tables: Any = self.batch.tables
        self.step_set: Any = self.batch.step_sets[0]  # type: ignore[index]
        for name, array in vocabulary_arrays(table).items():
            self.tables["vocabulary"][name] = self._put(array)
        for at, block in zip(self.at, blocks, strict=False):
            self.memory.write(int(self.tables["grammars"]) + 4 * int(at), block.tobytes())
        self.memory.write(int(self.tables["grammar_at"]), self.at[:-1].tobytes())
        logits = np.random.default_rng(1).standard_normal((rows, vocab)).astype(np.float32)
        sample, target = Sample(Buffer("logits", rows, vocab, Element.FP32)), Target(device.n_multiprocessors)
        self.plan = (choose(sample, target),)
        names = {work.kernel for work in self.plan[0].launches if isinstance(work, Launch)}
        self.kernels = Kernels(device.arch, names, target.shared_bytes, Element.BF16)
        none: Any = None
        self.launcher = StepLauncher(
            self.kernels, none, none, self.stream, {"logits": self._put(logits)}, self.tables.tobytes()
        )

    def measure(self, kind: str | None, sampling: dict[str, float]) -> float:
        """Microseconds. Kind None: no row has a grammar."""
        params = np.zeros(self.rows, Descriptor)
        params["top_p"] = params["repetition_penalty"] = 1
        params["prompt_tokens"], params["seed"] = 1, np.arange(self.rows)
        for name, value in sampling.items():
            params[name] = value
        states = np.zeros((self.rows, 2), GrammarState)
        last = np.zeros(self.rows, np.uint32)
        if kind is not None:
            params["grammar_words"] = np.diff(self.at)
            for row, doc in enumerate(self.documents):
                last[row] = self._stand(doc, kind, row, states[row, 0])
        self._write_step(params, states, last)
        return replayed_us(self.launcher, self.stream, self.plan, self.step_set.tobytes())

    def _stand(self, doc: Document, kind: str, row: int, state: NDArray[np.void]) -> int:
        """Brings a row where it is to stand: the state before its last byte, and the token of that byte."""
        where = random.Random(row).randrange(1, len(doc.text)) if kind == "mixed" else max(1, doc.marks[kind])
        walk = Walk(doc.grammar)
        assert walk.step_all(doc.text[: where - 1])
        state["state"] = walk.state
        return self.table.index(doc.text[where - 1 : where])

    def _write_step(
        self, params: NDArray[np.void], states: NDArray[np.void], last: NDArray[np.uint32]
    ) -> None:
        """Each row has a prompt of one token, and has answered one: the step feeds that."""
        head = np.zeros((), abi.StepHead)
        head["id"], head["n_tokens"], head["batch_size"], head["n_decode"] = 1, *(self.rows,) * 3
        history = np.zeros((self.rows, CONTEXT), np.uint32)
        history[:, 1] = last
        rows = np.arange(self.rows)
        values = {"token_sequence": rows, "token_position": rows * 0 + 1, "batch_sequence": rows}
        values |= {"batch_first": rows, "batch_last": rows, "batch_emit": rows * 0 + 1}
        for name, array in values.items():
            self.memory.write(int(self.step_set[name]), array.astype("<u4").tobytes())
        self.memory.write(int(self.step_set["head"]), head.tobytes())
        self.memory.write(int(self.tables["history"]), history.tobytes())
        self.memory.write(int(self.tables["params"]), params.tobytes())
        self.memory.write(int(self.tables["grammar_states"]), states.tobytes())

    def _put(self, array: NDArray[Any]) -> int:
        address = self.memory.allocate(max(1, array.nbytes))
        self.memory.write(address, array.tobytes())
        return address

    def close(self) -> None:
        self.kernels.close()
        self.stream.close()
        self.memory.close()


def report(results: list[Result]) -> str:
    lines = ["| rows | sampling | grammars | us | more |", "|---|---|---|---|---|"]
    lines += [f"| {r.rows} | {r.sampling} | {r.kind} | {r.us:.1f} | {r.more:+.1f} |" for r in results]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--json", type=Path, help="write the results there, too")
    options = parser.parse_args()
    device, table = Device(), vocabulary(options.vocab)
    results = []
    for rows in options.rows:
        bench = SamplerBench(device, table, rows)
        for name, sampling in SAMPLING.items():
            plain = bench.measure(None, sampling)
            results.append(Result(rows, name, "none", plain, 0.0))
            for kind in KINDS:
                us = bench.measure(kind, sampling)
                results.append(Result(rows, name, kind, us, us - plain))
        bench.close()
    device.close()
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
