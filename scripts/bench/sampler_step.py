"""The sampler of one step of sequences that decode, over random logits, to be replayed alone or behind the
matmul that makes the logits; and the program that measures it for several numbers of rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from bench.replay import replayed_us
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.batch import allocate_batch
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.launcher import StepLauncher
from gpu_backend.engines.native.lowering import buffer_bytes, kernel_names
from gpu_backend.engines.native.weights import enqueue_random
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Epilogue, MatMul, Role, Sample
from ringbuffer.abi import Descriptor

CONTEXT = 64
SAMPLING = {"greedy": {"temperature": 0.0}, "drawn": {"temperature": 0.8, "top_k": 50, "top_p": 0.95}}


@dataclass(frozen=True)
class Result:
    """Microseconds of the sampler, and `more` than where rows ask for nothing."""

    rows: int
    sampling: str
    asked: str
    us: float
    more: float


class SamplerStep:
    """Each of `rows` sequences has a prompt of one token, and has answered one. Write tables, `compile`, then
    `measure`. `hidden`: the width of the head in front, random weights in bf16; 0 for none. `processors`:
    the LTO-IR of logits processors, `recent_processors` a bit for each that changes only recent ones.
    """

    def __init__(
        self,
        device: Device,
        rows: int,
        vocab: int,
        grammar_words: int = 0,
        hidden: int = 0,
        processors: Sequence[bytes] = (),
        recent_processors: int = 0,
    ) -> None:
        sizes = {"grammar_words": grammar_words, "processors": len(processors)}
        limits = Limits(rows, CONTEXT, 64, 1, 16, 64 * rows, **sizes)
        self._rows, self._device = rows, device
        self._memory, self._stream = DeviceMemory(device), Stream()
        shapes = (Shape(abi.StepKind.DECODE, rows, rows),)
        batch = allocate_batch(self._memory, limits, shapes, vocab, (vocab - 1,), recent_processors)
        self.tables: Any = batch.tables
        self._step_set: Any = batch.step_sets[0]  # type: ignore[index]
        logits, target = Buffer("logits", rows, vocab, Element.FP32), Target(device.n_multiprocessors)
        processed = Buffer("processed", rows, vocab, Element.FP32) if processors else None
        self._plan = [choose(Sample(logits, processed), target)]
        head = Matrix(vocab, hidden, Element.BF16, self._memory.allocate(2 * vocab * hidden or 1))
        x = Buffer("x", rows, hidden, Element.BF16)
        if hidden:
            product = MatMul(Role.HEAD, head, x, logits, Epilogue.STORE_FP32)
            self._plan.insert(0, choose(product, target))
        names = kernel_names([self._plan])
        self._kernels = Kernels(device.arch, names, Element.BF16, processors=processors)
        sizes = buffer_bytes([self._plan])
        self._addresses = {name: self._memory.allocate(size) for name, size in sizes.items()}
        random = np.random.default_rng(1).standard_normal((rows, vocab)).astype(np.float32)
        self._memory.write(self._addresses["logits"], random.tobytes())
        if hidden:
            enqueue_random(self._kernels, self._stream, head.address, vocab * hidden, 2, 0.0, hidden**-0.5)
            enqueue_random(self._kernels, self._stream, self._addresses["x"], rows * hidden, 3, 0.0, 1.0)
        self._launcher: StepLauncher

    def compile(self) -> None:
        """The tables' addresses are fixed from now on."""
        none: Any = None
        self._launcher = StepLauncher(
            self._kernels, none, none, self._stream, self._addresses, self.tables.tobytes()
        )

    def params(self, **values: float) -> NDArray[np.void]:
        """Of each row, with seeds of their own."""
        params = np.zeros(self._rows, Descriptor)
        params["top_p"] = params["repetition_penalty"] = 1
        params["prompt_tokens"], params["seed"] = 1, np.arange(self._rows)
        for name, value in values.items():
            params[name] = value
        return params

    def measure(self, params: NDArray[np.void], last: NDArray[np.uint32] | None = None) -> float:
        """Microseconds. `last`: the token that each row feeds."""
        n = self._rows
        head = np.zeros((), abi.StepHead)
        head["id"], head["n_tokens"], head["batch_size"], head["n_decode"] = 1, n, n, n
        history = np.zeros((n, CONTEXT), np.uint32)
        if last is not None:
            history[:, 1] = last
        rows = np.arange(n)
        values = {"token_sequence": rows, "token_position": rows * 0 + 1, "batch_sequence": rows}
        values |= {"batch_first": rows, "batch_last": rows, "batch_emit": rows * 0 + 1}
        for name, array in values.items():
            self._memory.write(int(self._step_set[name]), array.astype("<u4").tobytes())
        self._memory.write(int(self._step_set["head"]), head.tobytes())
        self.write("history", history)
        self.write("params", params)
        return replayed_us(self._launcher, self._stream, self._plan, self._step_set.tobytes())

    def write(self, table: str, array: NDArray[Any], offset: int = 0) -> None:
        """Into a table, `offset` bytes behind its beginning."""
        self._memory.write(int(self.tables[table]) + offset, array.tobytes())

    def put(self, array: NDArray[Any]) -> int:
        """Where the array lies from now on."""
        address = self._memory.allocate(max(1, array.nbytes))
        self._memory.write(address, array.tobytes())
        return address

    def close(self) -> None:
        self._kernels.close()
        self._stream.close()
        self._memory.close()


def measure_all(
    description: str, asked: str, measured: Callable[[Device, int, int, int], list[Result]]
) -> None:
    """A program: what `measured` finds on a device, for numbers of rows, a size of the vocabulary and a width
    of the head in front, as a table whose third column is `asked`.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument(
        "--hidden",
        type=int,
        default=0,
        help="width of the head in front (default: no head, the sampler alone)",
    )
    parser.add_argument("--json", type=Path, help="write the results there, too")
    options = parser.parse_args()
    device = Device()
    results = [
        result for rows in options.rows for result in measured(device, rows, options.vocab, options.hidden)
    ]
    device.close()
    print(f"| rows | sampling | {asked} | us | more |\n|---|---|---|---|---|")
    for r in results:
        print(f"| {r.rows} | {r.sampling} | {r.asked} | {r.us:.1f} | {r.more:+.1f} |")
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
