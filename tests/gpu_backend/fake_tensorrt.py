"""A TensorRT that builds and computes nothing, over the fake driver (fake_cuda.c): the library's Python API,
as far as the engine uses it.

A plan that is built is JSON, of its tensors and their shapes in the ONNX model. A context checks that it is
used as TensorRT asks for, and logs each of its calls with the addresses of its tensors; engines and contexts
log their beginning and their end. What a call adds to a capture is NODES, kinds of CUgraphNodeType.
"""

from __future__ import annotations

import ctypes
import enum
import json
from typing import Any

import onnx

__version__ = "11.0.0"
KERNEL, MEMCPY, MEMSET, HOST, GRAPH, MEM_ALLOC, CONDITIONAL = 0, 1, 2, 3, 4, 10, 13
COOPERATIVE = 1000  # a kernel, which fake_graphs.c knows by this
NODES: list[int] = [KERNEL, MEMSET, KERNEL]
SCRATCH_BYTES = 1000  # of an engine, for each row
CAPTURABLE = True
living: list[int] = []  # contexts
ran = False  # whether a plan was enqueued
BUILDS = True
LOADS = 1 << 30  # plans, before the library refuses to deserialize another one


def record(line: str, kinds: list[int] | None = None) -> None:
    """In the fake driver's log; `kinds` of nodes are added to a capture."""
    kinds = kinds or []
    ctypes.CDLL("libcuda.so.1").fake_enqueue(line.encode(), (ctypes.c_int * len(kinds))(*kinds), len(kinds))


class ILogger:
    INTERNAL_ERROR, ERROR, WARNING = range(3)

    def __init__(self) -> None: ...

    def log(self, severity: int, line: str) -> None: ...


class ExecutionContextAllocationStrategy(enum.Enum):
    STATIC = 0
    USER_MANAGED = 2


class ProfilingVerbosity(enum.Enum):
    DETAILED = 2


class CudaGraphStrategy(enum.Enum):
    DISABLED = 0
    WHOLE_GRAPH_CAPTURE = 1


class NetworkDefinitionCreationFlag(enum.IntEnum):
    STRONGLY_TYPED = 1


class OnnxParserFlag(enum.Enum):
    ENABLE_PLUGIN_OVERRIDE = 3


class BuilderFlag(enum.Enum):
    REQUIRE_USER_ALLOCATION = 1


class ComputeCapability(enum.Enum):
    SM89 = 89
    SM120 = 120


class IBuilderConfig:
    profiling_verbosity: ProfilingVerbosity | None = None
    max_aux_streams: int | None = None
    num_compute_capabilities = 0

    def set_flag(self, flag: BuilderFlag) -> None: ...

    def set_compute_capability(self, capability: ComputeCapability, index: int) -> None: ...


class INetworkDefinition:
    _graph: Any = None


class OnnxParser:
    num_errors = 0

    def __init__(self, network: INetworkDefinition, log: ILogger) -> None:
        self._network = network

    def parse(self, model: bytes) -> bool:
        self._network._graph = onnx.load_from_string(model).graph
        return True


class Builder:
    def __init__(self, log: ILogger) -> None:
        self._log = log
        record("create builder")

    def __del__(self) -> None:
        record("destroy builder")

    def create_network(self, flags: int) -> INetworkDefinition:
        assert flags == 1 << NetworkDefinitionCreationFlag.STRONGLY_TYPED
        return INetworkDefinition()

    def create_builder_config(self) -> IBuilderConfig:
        return IBuilderConfig()

    def build_serialized_network(self, network: INetworkDefinition, config: IBuilderConfig) -> bytes | None:
        if not BUILDS:
            self._log.log(ILogger.ERROR, "no tactic")
            return None
        tensors = {
            value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
            for value in (*network._graph.input, *network._graph.output)
        }
        outputs = [value.name for value in network._graph.output]
        return json.dumps({"tensors": tensors, "outputs": outputs}).encode()


class IRuntimeCache:
    """What it holds is how many contexts it has compiled for."""

    def __init__(self) -> None:
        self._contexts = 0
        record("create kernels")

    def __del__(self) -> None:
        record("destroy kernels")

    def deserialize(self, blob: bytes) -> bool:
        record(f"kept {blob.decode()}")
        return True

    def serialize(self) -> bytes:
        return str(self._contexts).encode()


class IRuntimeConfig:
    cuda_graph_strategy: CudaGraphStrategy | None = None
    _cache: IRuntimeCache | None = None

    def create_runtime_cache(self) -> IRuntimeCache:
        return IRuntimeCache()

    def set_runtime_cache(self, cache: IRuntimeCache) -> bool:
        self._cache = cache
        return True

    def set_execution_context_allocation_strategy(self, strategy: ExecutionContextAllocationStrategy) -> None:
        self._strategy = strategy


class IExecutionContext:
    def __init__(self, engine: ICudaEngine) -> None:
        self._engine = engine
        self._addresses: dict[str, int] = {}
        self._scratch: tuple[int, int] | None = None
        self._ran = False
        living.append(id(self))
        record("create execution")

    def __del__(self) -> None:
        living.remove(id(self))
        record("destroy execution")

    def set_device_memory(self, memory: int, size: int) -> None:
        assert not self._ran, "a context that was captured must not change"
        assert size >= self._engine.device_memory_size_v2
        assert memory % 256 == 0
        self._scratch = memory, size

    def set_tensor_address(self, name: str, memory: int) -> bool:
        assert not self._ran, "a context that was captured must not change"
        assert memory % 256 == 0
        self._addresses[name] = memory
        return name in self._engine._tensors

    def infer_shapes(self) -> list[str]:
        return []

    def is_stream_capturable(self, stream: int) -> bool:
        return CAPTURABLE

    def execute_async_v3(self, stream: int) -> bool:
        assert self._scratch is not None, "no memory to work in"
        assert stream, "the default stream"
        if self._addresses.keys() != self._engine._tensors.keys():
            return False
        global ran
        self._ran = ran = True
        words = [f"{name}={self._addresses[name]}" for name in self._engine._tensors]
        record(" ".join(["plan", str(self._scratch[0]), *words]), NODES)
        return True


class ICudaEngine:
    def __init__(self, plan: bytes) -> None:
        self._tensors: dict[str, list[int]] = json.loads(plan)["tensors"]
        self._rows = self._tensors[json.loads(plan)["outputs"][0]][0]
        record("create engine")

    def __del__(self) -> None:
        record("destroy engine")

    @property
    def device_memory_size_v2(self) -> int:
        return SCRATCH_BYTES * self._rows

    def create_runtime_config(self) -> IRuntimeConfig:
        return IRuntimeConfig()

    def create_execution_context(self, how: object) -> IExecutionContext:
        if isinstance(how, IRuntimeConfig):
            assert how.cuda_graph_strategy is CudaGraphStrategy.DISABLED
            assert how._cache is not None
            how._cache._contexts += 1
            how = how._strategy
        assert how is ExecutionContextAllocationStrategy.USER_MANAGED
        return IExecutionContext(self)


class Runtime:
    def __init__(self, log: ILogger) -> None:
        self._log = log
        self._loaded = 0

    def deserialize_cuda_engine(self, plan: bytes) -> ICudaEngine | None:
        if self._loaded == LOADS:
            self._log.log(ILogger.ERROR, "the plan is of another version")
            return None
        self._loaded += 1
        return ICudaEngine(plan)
