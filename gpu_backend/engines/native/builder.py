"""The builder of the CUDA engine: it sizes the KV cache, then loads the weights and captures the graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gpu_backend.cuda.compile import CompileError
from gpu_backend.cuda.cublas import CublasError
from gpu_backend.cuda.driver import CudaError, Device
from gpu_backend.cuda.toolkit import ToolkitError
from gpu_backend.engines.base import Batch, EngineError, Limits, Shape
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.kv_pages import with_host_pages, with_pages
from gpu_backend.engines.native.engine import NativeEngine
from gpu_backend.engines.native.lowering import OWN_KERNELS, Lowering
from gpu_backend.engines.native.sizing import needs, page_bytes, pages_that_fit, with_mixed_share
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.description import Model
from gpu_backend.progress import ProgressLine
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

RANDOM_SEED = 1


class NativeEngineBuilder:
    """A gpu_backend.engines.builder.GpuEngineBuilder, for steps that are planned as `lowering` says."""

    def __init__(self, lowering: Lowering = OWN_KERNELS) -> None:
        self._lowering = lowering

    def limits(
        self,
        device: Device,
        config: Model,
        wanted: Limits,
        kv_memory: int | None,
        host_kv_memory: int | None = None,
    ) -> Limits:
        wanted = with_mixed_share(wanted, config)
        shapes, free_bytes = GraphGrid(wanted).shapes, device.free_bytes()
        chip, page = device.chip, page_bytes(config, wanted)
        if kv_memory:
            limits = with_pages(wanted, kv_memory // page, asked=True)
            kv_bytes = limits.total_pages * page
            needs(config, wanted, shapes, chip, kv_bytes, self._lowering).check(free_bytes, free_bytes)
        else:
            pages = pages_that_fit(config, wanted, shapes, free_bytes, chip, lowering=self._lowering)
            limits = with_pages(wanted, pages, asked=False)
        return with_host_pages(limits, page, host_kv_memory)

    def build(
        self,
        device: Device,
        config: Model,
        directory: Path,
        random: bool,
        limits: Limits,
        shapes: Sequence[Shape],
        batch: Batch,
        processors: Sequence[bytes] = (),
    ) -> NativeEngine:
        try:
            source = RandomWeights(RANDOM_SEED) if random else Checkpoint(directory)
            of = device, config, source, limits, shapes, batch
            return NativeEngine(*of, ProgressLine(), self._lowering, processors)
        except (CheckpointError, CudaError, CublasError, CompileError, ToolkitError) as error:
            raise EngineError(str(error)) from error
