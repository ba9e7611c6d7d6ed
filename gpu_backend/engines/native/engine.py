"""The CUDA engine: one captured graph per shape and step set, over buffers in GPU memory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gpu_backend.abi import STEP_SETS
from gpu_backend.cuda.cublas import WORKSPACE_BYTES, Cublas
from gpu_backend.cuda.driver import CudaError, Device, Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory, PinnedMemory
from gpu_backend.cuda.tensor_map import TENSOR_MAP_BYTES, cache_map
from gpu_backend.element import compute_element
from gpu_backend.engines.base import Batch, EngineError, Limits, Shape
from gpu_backend.engines.native.gemm_choice import GemmChoice
from gpu_backend.engines.native.gemm_clock import GemmClock
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.launcher import StepLauncher
from gpu_backend.engines.native.lowering import (
    OWN_KERNELS,
    Lowering,
    LowerStep,
    buffer_bytes,
    kernel_names,
    lowered_steps,
)
from gpu_backend.engines.native.megakernel_model import megakernel_model
from gpu_backend.engines.native.model import NativeModel, kv_cache, target_of
from gpu_backend.engines.native.weights import Progress, RandomWeights, WeightLoader, loading_kernels
from gpu_backend.models.description import Model
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.matrix import KvCache
from gpu_backend.ops.operations import DecodeModel
from gpu_backend.weights.checkpoint import Checkpoint


def ignore_progress(what: str, done: int, total: int) -> None:
    pass


class NativeEngine:
    """Executables for `shapes` over `batch`, whose arrays are device memory of the caller.

    `executables` uint64 [n_shapes, STEP_SETS]: CUgraphExec handles for device-side cudaGraphLaunch. The
    weights come from `source`: a checkpoint, or RandomWeights for benchmarks of a model's shape. `lowering`
    says what a step is made of: kernels of ours, or plans of a library between them. `processors` are the
    `limits.processors` logits processors as LTO-IR. Raises
    CheckpointError, CudaError, CublasError, CompileError, ToolkitError, EngineError; what was acquired
    until then is released.
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
        lowering: Lowering = OWN_KERNELS,
        processors: Sequence[bytes] = (),
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
            self._host_memory = PinnedMemory(device)
            owned.callback(self._host_memory.close)
            described = lowered_steps(config, limits, self._shapes, device.chip, lowering.lower)
            target, element = target_of(config, device.chip), compute_element(config.dtype)
            names = kernel_names(described) | loading_kernels(config, source)
            self.kernels = Kernels(device.arch, names, element, config.activation, processors)
            owned.callback(self.kernels.close)
            workspace = self._memory.allocate(WORKSPACE_BYTES)
            cublas = Cublas(self._stream, workspace, target.blocks)  # one is the scheduler's (C8)
            owned.callback(cublas.close)
            on = self._memory, self._stream, self.kernels
            loader = WeightLoader(*on, config, limits.max_context, source, progress, limits.kv_fp8)
            weights = loader.load()
            sizes = buffer_bytes(described)
            addresses = {name: self._memory.allocate(size) for name, size in sizes.items()}
            self._logits = addresses["logits"]
            self.model = NativeModel(config, limits, weights, self._make_cache(limits), target)
            fused = any(isinstance(choice.op, DecodeModel) for step in described for choice in step)
            model_struct = megakernel_model(config, weights, self._memory, self.model.cache) if fused else b""
            tables = np.asarray(batch.tables).tobytes()
            clock = partial(GemmClock, device, self.kernels, workspace, target.blocks)
            with closing(GemmChoice(device, cublas, weights, clock)) as choice:
                launched = self.kernels, cublas, choice, self._stream
                plans = lowering.runner(self._memory, self._stream) if lowering.runner else None
                if plans is not None:
                    owned.callback(plans.close)
                self.launcher = StepLauncher(*launched, addresses, tables, model_struct, plans)
                self._graphs = self._capture(owned, choice, lowering.lower, progress)
            self._owned = owned.pop_all()
        self.executables: NDArray[np.uint64] = np.array(
            [[graph.executable for graph in row] for row in self._graphs], np.uint64
        )

    def _make_cache(self, limits: Limits) -> KvCache:
        """The KV cache, its pages in host memory, and a tensor map of each layer's."""
        cache = kv_cache(self._config, limits)
        cache = replace(cache, address=self._memory.allocate(cache.n_bytes))
        if cache.host_pages:
            cache = replace(cache, host_address=self._pin(cache.host_pages * cache.page_bytes))
        maps = [cache_map(cache.keys(i), cache.layer_bytes, cache.row_bytes) for i in range(cache.layers)]
        address = self._memory.allocate(TENSOR_MAP_BYTES * len(maps))
        self._memory.write(address, b"".join(maps))
        return replace(cache, maps=address)

    def _pin(self, n_bytes: int) -> int:
        """Address of page-locked host memory. Raises EngineError."""
        try:
            return self._host_memory.allocate(n_bytes)
        except CudaError as error:
            told = f"cannot pin {n_bytes / 1e9:.1f} GB of host memory for KV pages ({error})"
            raise EngineError(f"{told}: lower --host-kv-memory") from error

    def _capture(
        self, owned: ExitStack, choice: GemmChoice, lower: LowerStep, progress: Progress
    ) -> list[list[Graph]]:
        """One executable per shape and step set."""
        graphs: list[list[Graph]] = []
        total = len(self._shapes) * STEP_SETS
        for shape in self._shapes:
            row, step = [], lower(self.model, shape)
            self.launcher.prepare(step)
            for step_set in self._sets:
                graph = self._captured(owned, step, step_set)
                if choice.settle():  # of sizes that only this capture has told
                    graph.close()
                    graph = self._captured(owned, step, step_set)
                graph.instantiate(self._stream)
                row.append(graph)
                progress("graphs", len(graphs) * STEP_SETS + len(row), total)
            graphs.append(row)
        return graphs

    def _captured(self, owned: ExitStack, step: list[Choice], step_set: bytes) -> Graph:
        graph = Graph()
        owned.callback(graph.close)
        with graph.capture(self._stream):
            self.launcher.enqueue(step, step_set)
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

    def logits(self, batch_slots: int) -> NDArray[np.float32]:
        """[batch_slots][vocab] of the last step; penalties and masks of the sampler are applied in place."""
        n_bytes = 4 * batch_slots * self._config.vocab_size
        return np.frombuffer(self._memory.read(self._logits, n_bytes), np.float32).reshape(batch_slots, -1)

    def close(self) -> None:
        """Releases everything, executables first (C7). The scheduler must have ended."""
        self._device.make_current()
        self._owned.close()
