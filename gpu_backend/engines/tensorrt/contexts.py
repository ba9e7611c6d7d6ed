"""What runs plans in captured steps: engines, one for each plan, and contexts, one for each call of it.

A captured graph holds what its context was when it was captured: NVIDIA's documentation calls it undefined
what such a graph does once the context has been changed. So every call of a step has a context of its own,
whose addresses are set once, and the graphs of the three step sets hold the same.

All contexts work in one arena. A step runs its plans one after the other, and the gate lets a step begin when
the one before has ended (E2), so that no two plans ever run at the same time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import EngineError
from gpu_backend.engines.tensorrt.compiled import CompiledKernels
from gpu_backend.engines.tensorrt.library import Library
from gpu_backend.engines.tensorrt.plans import Plan
from gpu_backend.ops.launch import Place, PlanCall


class Engines:
    """The engines of plans, each deserialized once, and a context for each of their calls, made before the
    KV cache is sized: what contexts hold is not free any more then. The GPU must be current in the caller's
    thread.

    TensorRT's objects end with the last reference to them. An error on its way holds the variables of all
    functions that it has left, and what they name would end after the GPU's context: so where an error may
    be raised no variable names such an object. Raises PlanError where the library does not start.
    """

    def __init__(self, library: Library, compiled: CompiledKernels) -> None:
        self._library = library
        self._compiled = compiled
        self._log = library.log()
        self._runtime = library.made(library.module.Runtime, self._log)
        self._by_plan: dict[str, Any] = {}
        # Contexts that no call has taken yet.
        self._idle: defaultdict[Hashable, list[Any]] = defaultdict(list)

    def add(self, key: Hashable, plan: Plan, names: Sequence[str]) -> None:
        """Calls of `key`, which run `plan`; `names` are theirs, for messages. Raises EngineError."""
        if plan.key not in self._by_plan:
            self._by_plan[plan.key] = self._runtime.deserialize_cuda_engine(plan.data)
        if self._by_plan[plan.key] is None:
            raise EngineError(f"{self._library.title} cannot load {names[0]}: {'; '.join(self._log.errors)}")
        for name in names:
            self._idle[key].append(self._new_context(plan.key))
            if self._idle[key][-1] is None:
                raise EngineError(f"no execution context for {name}: is there enough GPU memory?")

    @property
    def scratch_bytes(self) -> int:
        """Of GPU memory that a context works in, for the largest."""
        return max((engine.device_memory_size_v2 for engine in self._by_plan.values()), default=0)

    def take(self, key: Hashable) -> Any:
        """The context of a call, without memory to work in; the caller's from now on."""
        return self._idle[key].pop()

    def _new_context(self, plan: str) -> Any:
        """None where the library makes none. TensorRT for RTX makes graphs of its own where it may."""
        trt = self._library.module
        strategy = trt.ExecutionContextAllocationStrategy.USER_MANAGED
        if not self._library.rtx:
            return self._by_plan[plan].create_execution_context(strategy)
        config = self._by_plan[plan].create_runtime_config()
        config.set_execution_context_allocation_strategy(strategy)
        config.cuda_graph_strategy = trt.CudaGraphStrategy.DISABLED
        self._compiled.share(config)
        return self._by_plan[plan].create_execution_context(config)

    def close(self) -> None:
        """Contexts that were taken must be gone."""
        self._idle.clear()
        self._compiled.close()
        self._by_plan.clear()
        self._runtime = None


@contextmanager
def _told_of(plan: PlanCall) -> Iterator[None]:
    """Gives errors, ours and those of TensorRT and the driver, the plan's name."""
    try:
        yield
    except EngineError as error:
        raise EngineError(f"{plan.name} {error}") from error
    except RuntimeError as error:
        raise EngineError(f"{plan.name} fails: {error}") from error


class Contexts:
    """A gpu_backend.engines.native.launcher.PlanRunner over `engines`, which must outlive it."""

    def __init__(self, engines: Engines, memory: DeviceMemory, stream: Stream) -> None:
        self._engines = engines
        self._stream = stream
        self._arena_bytes = engines.scratch_bytes
        self._arena = memory.allocate(self._arena_bytes)
        self._contexts: dict[PlanCall, Any] = {}

    def prepare(self, plan: PlanCall, place: Place) -> None:
        """Gives the call its context, runs it once, because the first run may load kernels and allocate, and
        looks at what a capture of it would be."""
        if plan in self._contexts:
            return
        self._contexts[plan] = self._engines.take(plan.key)
        with _told_of(plan):
            self._contexts[plan].set_device_memory(self._arena, self._arena_bytes)
            for name, where in plan.bound:
                if not self._contexts[plan].set_tensor_address(name, place.address(where)):
                    raise EngineError(f"has no tensor {name}")
            if missing := self._contexts[plan].infer_shapes():
                raise EngineError(f"leaves the shapes of {', '.join(missing)} open")
            self._execute(plan)
            self._stream.synchronize()
            self._check_capture(plan)

    def enqueue(self, plan: PlanCall) -> None:
        with _told_of(plan):
            self._execute(plan)

    def _execute(self, plan: PlanCall) -> None:
        if not self._contexts[plan].execute_async_v3(self._stream.address):
            raise EngineError("cannot be enqueued")

    def _check_capture(self, plan: PlanCall) -> None:
        """Raises EngineError where the plan makes nodes that a graph for the device must not have."""
        # Editions and versions without the question are found out by the capture itself.
        asks = hasattr(self._contexts[plan], "is_stream_capturable")
        if asks and not self._contexts[plan].is_stream_capturable(self._stream.address):
            raise EngineError("cannot be captured into a graph, says TensorRT")
        with closing(Graph()) as graph:
            with graph.capture(self._stream):
                self._execute(plan)
            if graph.is_empty():
                raise EngineError("leaves nothing in a graph that is captured of it")
            if refused := graph.refused_nodes():
                kinds = ", ".join(kind.lower() for kind in refused)
                raise EngineError(f"has nodes that a graph launched by the GPU must not have: {kinds}")

    def close(self) -> None:
        self._contexts.clear()
