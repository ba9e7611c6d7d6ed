"""How an engine for a GPU is made. A further engine brings a builder; what serves from it stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from gpu_backend.cuda.driver import Device
from gpu_backend.engines.base import Batch, GraphEngine, Limits, Shape
from gpu_backend.models.description import Model


class GpuEngineBuilder(Protocol):
    """Call `limits` first, on a GPU that holds nothing else yet, then `build` with what it returned."""

    def limits(
        self,
        device: Device,
        config: Model,
        wanted: Limits,
        kv_memory: int | None,
        host_kv_memory: int | None = None,
    ) -> Limits:
        """`wanted` with the KV pages that fit beside the model, or those of `kv_memory` bytes, and those of
        `host_kv_memory` bytes of host memory.

        Raises ValueError with the numbers where the model does not fit the GPU's free memory.
        """
        ...

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
    ) -> GraphEngine:
        """Loads the checkpoint in `directory`, or random weights, and makes an executable for every shape.

        `batch` lies in the GPU's memory. `processors`: the LTO-IR of logits processors. Raises EngineError;
        what was acquired until then is released.
        """
        ...
