"""Times a GEMM library's algorithms on a model's own weights.

Clocks and caches are as in a step: random activations, the matrices of all layers one after the other, and
launches in a graph.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.cublas import Algorithm, Cublas, CublasError
from gpu_backend.cuda.driver import CudaError, Device, Stream
from gpu_backend.cuda.gemm import FP32_BYTES, HALF_BYTES, Gemm
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.weights import enqueue_random

X_BYTES = 64 << 20
OUT_BYTES = 128 << 20
SEED = 1
WEIGHT_BYTES = 512 << 20  # that a graph reads, of as many matrices as there are: caches hold 50 MB
FEWEST_GEMMS = 4  # of a graph
CANDIDATES = 4  # that are compared with the library's own choice
ROUNDS = 5  # of which the first warms up
GAIN = 0.03  # that an algorithm needs to take the place of the library's own choice


class GemmClock:
    """Owns a stream, a handle and scratch memory. `workspace`: as Cublas takes it, with no other user now."""

    def __init__(self, device: Device, kernels: Kernels, workspace: int, multiprocessors: int) -> None:
        with ExitStack() as owned:
            self._stream = Stream()
            owned.callback(self._stream.close)
            memory = DeviceMemory(device)
            owned.callback(memory.close)
            self._x, self._out = memory.allocate(X_BYTES), memory.allocate(OUT_BYTES)
            enqueue_random(kernels, self._stream, self._x, X_BYTES // HALF_BYTES, SEED, 0.0, 1.0)
            self._cublas = Cublas(self._stream, workspace, multiprocessors)
            owned.callback(self._cublas.close)
            self._owned = owned.pop_all()

    @staticmethod
    def has_room(gemm: Gemm) -> bool:
        """Whether x and out of the matmul fit the scratch memory."""
        x_bytes, out_bytes = HALF_BYTES * gemm.n_in, FP32_BYTES * gemm.n_out
        return gemm.rows * x_bytes <= X_BYTES and gemm.rows * out_bytes <= OUT_BYTES

    def fastest(self, gemm: Gemm, half: int, weights: Sequence[int]) -> Algorithm | None:
        """The fastest algorithm for these sizes and any of `weights`; None is the library's own choice.

        Raises CudaError, CublasError.
        """
        gemm = replace(gemm, x=self._x, out=self._out)
        others = self._cublas.algorithms(gemm, half, CANDIDATES)
        if not others:
            return None
        n_gemms = max(FEWEST_GEMMS, ceil_div(WEIGHT_BYTES, HALF_BYTES * gemm.n_in * gemm.n_out))
        gemms = [replace(gemm, weight=weights[i % len(weights)]) for i in range(n_gemms)]
        with ExitStack() as owned:
            graphs = {
                algorithm: graph
                for algorithm in (None, *others)
                if (graph := self._graph(owned, gemms, half, algorithm)) is not None
            }
            rounds = [{a: self._seconds(graph) for a, graph in graphs.items()} for _ in range(ROUNDS)]
        times = {algorithm: min(seconds[algorithm] for seconds in rounds[1:]) for algorithm in graphs}
        best = min(times, key=lambda algorithm: times[algorithm])
        return best if times[best] < (1 - GAIN) * times[None] else None

    def _graph(
        self, owned: ExitStack, gemms: list[Gemm], half: int, algorithm: Algorithm | None
    ) -> Graph | None:
        """None where an algorithm fails, as it may in a graph for the device; the library's own must not."""
        graph = Graph()
        owned.callback(graph.close)
        try:
            with graph.capture(self._stream):
                for gemm in gemms:
                    self._cublas.linear(gemm, half, algorithm)
            graph.instantiate(self._stream)
        except (CublasError, CudaError) as error:
            if algorithm is None or getattr(error, "name", "") == "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            return None
        return graph

    def _seconds(self, graph: Graph) -> float:
        began = time.perf_counter()
        graph.launch(self._stream)
        self._stream.synchronize()
        return time.perf_counter() - began

    def close(self) -> None:
        """Before the scheduler starts (C2)."""
        self._owned.close()
