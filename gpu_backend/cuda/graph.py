"""CUDA graphs that the device can launch: captured, instantiated for device launch, uploaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_backend.cuda.driver import CudaError, Stream, api, call

DEVICE_NODES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH")  # that a graph may have which the device launches


class Graph:
    """An executable graph that can be launched from the host and from a kernel of another device graph.

        graph = Graph()
        with graph.capture(stream):
            ...launches on stream...
        graph.instantiate(stream)

    Only kernel, memcpy, memset and child-graph nodes are allowed (CUDA programming guide 4.2.6.1.1), in child
    graphs as well; `refused_nodes` finds others before the driver does, which does not say whose they are.
    """

    def __init__(self) -> None:
        self._exec: Any = None
        self._graph: Any = None

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[None]:
        # RELAXED: a library may load a module or allocate while its work is captured.
        call("cuStreamBeginCapture", stream.handle, api().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
        try:
            yield
        except BaseException:
            _, graph = api().cuStreamEndCapture(stream.handle)  # an invalidated capture has none
            if graph and int(graph):
                api().cuGraphDestroy(graph)
            raise
        self._graph = call("cuStreamEndCapture", stream.handle)

    def refused_nodes(self) -> list[str]:
        """The kinds of the nodes that no graph of a step may have, each once: "HOST", "COOPERATIVE KERNEL".

        The driver takes cooperative kernels. But all blocks of one run at the same time, and where they fill
        the GPU they wait forever for the multiprocessor that the scheduler holds (C8).
        """
        kinds = dict.fromkeys(node_kinds(self._graph))
        return [kind for kind in kinds if kind not in DEVICE_NODES]

    def is_empty(self) -> bool:
        """Whether nothing was captured: a library that works in another stream leaves no node."""
        return not next(node_kinds(self._graph), None)

    def instantiate(self, stream: Stream) -> None:
        """Instantiates for device launch and uploads. Raises CudaError with the reason of a refusal."""
        driver = api()
        params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
        params.flags = int(driver.CUgraphInstantiate_flags.CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        try:
            self._exec = call("cuGraphInstantiateWithParams", self._graph, params)
        except CudaError as error:
            raise CudaError(error.name, f"{error.text}; {params.result_out.name}", error.call) from error
        call("cuGraphUpload", self._exec, stream.handle)
        stream.synchronize()

    @property
    def executable(self) -> int:
        """The CUgraphExec handle, which device code passes to cudaGraphLaunch."""
        return int(self._exec)

    def launch(self, stream: Stream) -> None:
        """Launches from the host; never while the device may launch the same executable (C5)."""
        call("cuGraphLaunch", self._exec, stream.handle)

    def close(self) -> None:
        if self._exec is not None:
            call("cuGraphExecDestroy", self._exec)
            self._exec = None
        if self._graph is not None:
            call("cuGraphDestroy", self._graph)
            self._graph = None


def node_kinds(graph: Any) -> Iterator[str]:
    """Of all nodes of a graph and of its child graphs: "KERNEL", "COOPERATIVE KERNEL", "CONDITIONAL"..."""
    _, count = call("cuGraphGetNodes", graph, 0)
    nodes, _ = call("cuGraphGetNodes", graph, count) if count else ((), 0)
    for node in nodes:
        kind = call("cuGraphNodeGetType", node).name.removeprefix("CU_GRAPH_NODE_TYPE_")
        yield "COOPERATIVE KERNEL" if kind == "KERNEL" and is_cooperative(node) else kind
        if kind == "GRAPH":
            yield from node_kinds(call("cuGraphChildGraphNodeGetGraph", node))


def is_cooperative(kernel: Any) -> bool:
    asked = api().CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    return bool(call("cuGraphKernelNodeGetAttribute", kernel, asked).cooperative)
