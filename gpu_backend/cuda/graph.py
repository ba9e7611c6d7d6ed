"""CUDA graphs that the device can launch: captured, instantiated for device launch, uploaded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gpu_backend.cuda.driver import CudaError, Stream, api, call


class Graph:
    """An executable graph that can be launched from the host and from a kernel of another device graph.

        graph = Graph()
        with graph.capture(stream):
            ...launches on stream...
        graph.instantiate(stream)

    Only kernel, memcpy, memset and child-graph nodes are allowed (CUDA programming guide 4.2.6.1.1).
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
