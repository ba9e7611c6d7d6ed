"""The CUDA engine: one captured graph per shape and step set, over buffers in GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import STEP_SETS
from gpu_backend.cuda.cublas import WORKSPACE_BYTES, Cublas
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.kernels import Kernels, suits_decoder
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.tensor_map import TENSOR_MAP_BYTES, cache_map
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.decoder import decoder_model
from gpu_backend.engine.gemm_choice import GemmChoice
from gpu_backend.engine.gemm_clock import GemmClock
from gpu_backend.engine.native_step import NativeStep
from gpu_backend.engine.native_weights import DeviceWeights, Progress, RandomWeights, WeightLoader
from gpu_backend.engine.sizing import activation_bytes, bytes_per_page, layer_cache_bytes
from gpu_backend.engines.base import Batch, Limits, Shape
from gpu_backend.models.description import Model
from gpu_backend.weights.checkpoint import Checkpoint


def ignore_progress(what: str, done: int, total: int) -> None:
    pass


class NativeEngine:
    """Executables for `shapes` over `batch`, whose arrays are device memory of the caller.

    `executables` uint64 [n_shapes, STEP_SETS]: CUgraphExec handles for device-side cudaGraphLaunch. The
    weights come from `source`: a checkpoint, or RandomWeights for benchmarks of a model's shape. Raises
    CheckpointError, CudaError, CublasError, CompileError, ToolkitError; what was acquired until then is
    released.
    """

    def __init__(
        self,
        device: Device,
        config: Model,
        source: Checkpoint | RandomWeights,
        limits: Limits,
        shapes: Sequence[Shape],
        batch: Batch,
        progress: Progress = ignore_progress,
    ) -> None:
        self._device = device
        self._config = config
        self._shapes = tuple(shapes)
        self._sets = [step_set.tobytes() for step_set in np.asarray(batch.step_sets)]
        device.make_current()
        with ExitStack() as owned:
            self._stream = Stream()
            owned.callback(self._stream.close)
            self._memory = DeviceMemory(device)
            owned.callback(self._memory.close)
            kernels = Kernels(device.arch, config, device.n_multiprocessors)
            owned.callback(kernels.close)
            workspace = self._memory.allocate(WORKSPACE_BYTES)
            n_multiprocessors = device.n_multiprocessors - 1  # one is the scheduler's (C8)
            cublas = Cublas(self._stream, workspace, n_multiprocessors)
            owned.callback(cublas.close)
            loader = WeightLoader(self._memory, self._stream, kernels, config, source, progress)
            weights = loader.load()
            tables = np.asarray(batch.tables).tobytes()
            clock = partial(GemmClock, device, kernels, workspace, n_multiprocessors)
            with closing(GemmChoice(device, cublas, weights, clock)) as choice:
                self._step = self._make_step(limits, tables, kernels, cublas, choice, weights)
                self._graphs = self._capture(owned, choice, progress)
            self._owned = owned.pop_all()
        self.executables: NDArray[np.uint64] = np.array(
            [[graph.executable for graph in row] for row in self._graphs], np.uint64
        )

    def _make_step(
        self,
        limits: Limits,
        tables: bytes,
        kernels: Kernels,
        cublas: Cublas,
        choice: GemmChoice,
        weights: DeviceWeights,
    ) -> NativeStep:
        n_multiprocessors = self._device.n_multiprocessors
        sizes = activation_bytes(self._config, self._shapes, n_multiprocessors)
        activations = Activations(**{name: self._memory.allocate(size) for name, size in sizes.items()})
        self._logits = activations.logits
        kv_cache = self._memory.allocate(limits.total_pages * bytes_per_page(self._config, limits.page_size))
        layer_bytes = layer_cache_bytes(self._config, limits)
        maps = [
            cache_map(kv_cache + 2 * i * layer_bytes, layer_bytes, self._config.head_dim)
            for i in range(self._config.n_layers)
        ]
        cache_maps = self._memory.allocate(TENSOR_MAP_BYTES * len(maps))
        self._memory.write(cache_maps, b"".join(maps))
        decoder = None
        if suits_decoder(self._config, n_multiprocessors):
            decoder = decoder_model(self._config, weights, self._memory, kv_cache, layer_bytes, cache_maps)
        return NativeStep(
            self._config,
            limits,
            tables,
            kernels,
            cublas,
            choice,
            self._stream,
            weights,
            activations,
            kv_cache,
            cache_maps,
            n_multiprocessors,
            decoder,
        )

    def _capture(self, owned: ExitStack, choice: GemmChoice, progress: Progress) -> list[list[Graph]]:
        """One executable per shape and step set."""
        graphs: list[list[Graph]] = []
        total = len(self._shapes) * STEP_SETS
        for shape in self._shapes:
            row = []
            for step_set in self._sets:
                graph = self._captured(owned, shape, step_set)
                if choice.settle():  # of sizes that only this capture has told
                    graph.close()
                    graph = self._captured(owned, shape, step_set)
                graph.instantiate(self._stream)
                row.append(graph)
                progress("graphs", len(graphs) * STEP_SETS + len(row), total)
            graphs.append(row)
        return graphs

    def _captured(self, owned: ExitStack, shape: Shape, step_set: bytes) -> Graph:
        graph = Graph()
        owned.callback(graph.close)
        with graph.capture(self._stream):
            self._step.enqueue(shape, step_set)
        return graph

    def enqueue(self, shape: int, step_set: int) -> None:
        """Launches one executable from the host; never beside the scheduler (C5)."""
        self._device.make_current()
        self._graphs[shape][step_set].launch(self._stream)

    def synchronize(self) -> None:
        """Waits for what was enqueued."""
        self._device.make_current()
        self._stream.synchronize()

    def run(self, shape: int, step_set: int) -> None:
        """Runs one executable to completion from the host."""
        self.enqueue(shape, step_set)
        self.synchronize()

    def logits(self, lanes: int) -> NDArray[np.float32]:
        """[lanes][vocab] of the last step; penalties and masks of the sampler are applied in place."""
        n_bytes = 4 * lanes * self._config.vocab_size
        return np.frombuffer(self._memory.read(self._logits, n_bytes), np.float32).reshape(lanes, -1)

    def close(self) -> None:
        """Releases everything, executables first (C7). The scheduler must have ended."""
        self._device.make_current()
        self._owned.close()
