"""What runs plans in captured steps: engines, one for each plan, and contexts, one for each call of it.

A captured graph holds what its context was when it was captured: NVIDIA's documentation calls it undefined
what such a graph does once the context has been changed. So every call of a step has a context of its own,
whose addresses are set once, and the graphs of the three step sets hold the same.

All contexts work in one arena. A step runs its plans one after the other, and the gate lets a step begin when
the one before has ended (E2), so that no two plans ever run at the same time.
"""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import closing
from typing import Any

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import EngineError
from gpu_backend.engines.tensorrt.library import Library
from gpu_backend.engines.tensorrt.plans import Plan
from gpu_backend.ops.launch import LibraryPlan, Place


class Engines:
    """The engines of plans, each deserialized once. The GPU must be current in the caller's thread.

    TensorRT's objects end with the last reference to them. An error on its way holds the variables of all
    functions that it has left, and what they name would end after the GPU's context: so where an error may
    be raised no variable names such an object. Raises PlanError where the library does not start.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._log = library.log()
        self._runtime = library.made(library.module.Runtime, self._log)
        self._by_plan: dict[str, Any] = {}
        self._engines: dict[Hashable, Any] = {}

    def add(self, key: Hashable, plan: Plan, name: str) -> None:
        """What calls of `key` run; `name` is for the message. Raises EngineError."""
        if plan.key not in self._by_plan:
            engine = self._runtime.deserialize_cuda_engine(plan.data)
            if engine is None:
                raise EngineError(f"{self._library.title} cannot load {name}: {'; '.join(self._log.errors)}")
            self._by_plan[plan.key] = engine
        self._engines[key] = self._by_plan[plan.key]

    @property
    def scratch_bytes(self) -> int:
        """Of GPU memory that a context works in, for the largest."""
        return max((engine.device_memory_size_v2 for engine in self._by_plan.values()), default=0)

    def context(self, key: Hashable) -> Any:
        """A new execution context without memory. TensorRT for RTX makes graphs of its own where it may."""
        trt = self._library.module
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not self._library.rtx:
            return self._engines[key].create_execution_context(strategy)
        config = self._engines[key].create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        config.cuda_graph_strategy = trt.CudaGraphStrategy.DISABLED
        return self._engines[key].create_execution_context(config)

    def close(self) -> None:
        """Contexts must be gone."""
        self._engines.clear()
        self._by_plan.clear()
        self._runtime = None


class Contexts:
    """A gpu_backend.engines.native.launcher.PlanRunner over `engines`, which must outlive it."""

    def __init__(self, engines: Engines, memory: DeviceMemory, stream: Stream) -> None:
        self._engines = engines
        self._stream = stream
        self._arena_bytes = engines.scratch_bytes
        self._arena = memory.allocate(self._arena_bytes)
        self._contexts: dict[LibraryPlan, Any] = {}

    def prepare(self, plan: LibraryPlan, place: Place) -> None:
        """Gives the call its context, runs it once, because the first run may load kernels and allocate, and
        looks at what a capture of it would be."""
        if plan in self._contexts:
            return
        self._contexts[plan] = self._engines.context(plan.key)
        if self._contexts[plan] is None:
            raise EngineError(f"no execution context for {plan.name}: is there enough GPU memory?")
        self._contexts[plan].set_device_memory(self._arena, self._arena_bytes)
        for name, where in plan.bound:
            if not self._contexts[plan].set_tensor_address(name, place.address(where)):
                raise EngineError(f"{plan.name} has no tensor {name}")
        if missing := self._contexts[plan].infer_shapes():
            raise EngineError(f"{plan.name} leaves the shapes of {', '.join(missing)} open")
        self.enqueue(plan)
        self._stream.synchronize()
        self._check_capture(plan)

    def enqueue(self, plan: LibraryPlan) -> None:
        if not self._contexts[plan].execute_async_v3(self._stream.address):
            raise EngineError(f"{plan.name} cannot be enqueued")

    def _check_capture(self, plan: LibraryPlan) -> None:
        """Raises EngineError where the plan makes nodes that a graph for the device must not have."""
        # Editions and versions without the question are found out by the capture itself.
        asks = hasattr(self._contexts[plan], "is_stream_capturable")
        if asks and not self._contexts[plan].is_stream_capturable(self._stream.address):
            raise EngineError(f"{plan.name} cannot be captured into a graph, says TensorRT")
        with closing(Graph()) as graph:
            with graph.capture(self._stream):
                self.enqueue(plan)
            if refused := graph.refused_nodes():
                kinds = ", ".join(kind.lower() for kind in refused)
                raise EngineError(
                    f"{plan.name} has nodes that a graph launched by the GPU must not have: {kinds}"
                )

    def close(self) -> None:
        self._contexts.clear()
