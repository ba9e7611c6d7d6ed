"""Enqueues a lowered step on a stream, which runs it or captures it into a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpu_backend.cuda.cublas import Algorithm, Cublas
from gpu_backend.cuda.driver import Kernel, Stream
from gpu_backend.cuda.gemm import Gemm
from gpu_backend.element import Element
from gpu_backend.ops.candidate import Choice
from gpu_backend.ops.launch import FromStep, LibraryGemm, Place, PlanCall, Work


class KernelTable(Protocol):
    def __getitem__(self, name: str) -> Kernel: ...


class Algorithms(Protocol):
    """Which of cuBLAS's algorithms multiplies: gpu_backend.engines.native.gemm_choice.GemmChoice."""

    def algorithm(self, gemm: Gemm, half: int) -> Algorithm | None: ...


class PlanRunner(Protocol):
    """Runs what a library has built: gpu_backend.engines.tensorrt.contexts.Contexts."""

    def prepare(self, plan: PlanCall, place: Place) -> None:
        """Before the plan is captured; it may allocate, and runs the plan once. Raises EngineError."""
        ...

    def enqueue(self, plan: PlanCall) -> None:
        """One that is prepared. Raises EngineError."""
        ...

    def close(self) -> None:
        """The graphs that hold its plans must be gone."""
        ...


class StepLauncher:
    """Launches the work of a lowered step on a stream. It owns nothing.

    `addresses` are those of the buffers. `megakernel_model` is blink_megakernel_model by value, and empty if
    no step has the megakernel. `plans` runs those of a library, if steps have such.
    """

    def __init__(
        self,
        kernels: KernelTable,
        cublas: Cublas,
        algorithms: Algorithms,
        stream: Stream,
        addresses: Mapping[str, int],
        tables: bytes,
        megakernel_model: bytes = b"",
        plans: PlanRunner | None = None,
    ) -> None:
        self._kernels = kernels
        self._cublas = cublas
        self._algorithms = algorithms
        self._stream = stream
        self._addresses = addresses
        self._by_value = {FromStep.TABLES: tables, FromStep.MEGAKERNEL_MODEL: megakernel_model}
        self._plans = plans

    def prepare(self, step: Sequence[Choice]) -> None:
        """What has to happen once before the step is captured. Raises EngineError."""
        place = Place(self._addresses, self._by_value)
        for choice in step:
            for work in choice.launches:
                if isinstance(work, PlanCall):
                    assert self._plans is not None
                    self._plans.prepare(work, place)

    def enqueue(self, step: Sequence[Choice], step_set: bytes) -> None:
        """The whole step; `step_set` is blink_step_set by value.

        Raises CudaError, CublasError, EngineError.
        """
        for choice in step:
            for work in choice.launches:
                self.launch(work, step_set)

    def launch(self, work: Work, step_set: bytes) -> None:
        """One launch of a step. Raises CudaError, CublasError, EngineError."""
        if isinstance(work, PlanCall):
            assert self._plans is not None
            self._plans.enqueue(work)
            return
        place = Place(self._addresses, {**self._by_value, FromStep.STEP_SET: step_set})
        if isinstance(work, LibraryGemm):
            half, gemm = work.weight.element.cuda_data_type, gemm_of(work, place)
            self._cublas.linear(gemm, half, self._algorithms.algorithm(gemm, half))
            return
        self._kernels[work.kernel].launch(
            work.grid,
            work.block,
            self._stream,
            *(place.argument(operand) for operand in work.operands),
            shared_bytes=work.shared_bytes,
            overlap=work.overlap,
            cluster=work.cluster,
            divided=work.divided,
        )


def gemm_of(gemm: LibraryGemm, place: Place) -> Gemm:
    """As Cublas takes it."""
    addresses = (place.address(gemm.weight), place.address(gemm.x), place.address(gemm.out))
    output = "add" if gemm.adds else "float" if gemm.out.element is Element.FP32 else "half"
    return Gemm(*addresses, gemm.x.rows, gemm.x.columns, gemm.out.columns, output)
