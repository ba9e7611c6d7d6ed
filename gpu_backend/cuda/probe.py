"""What `blink doctor` says about this machine's GPU: each ability is tried, not looked up in a table."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gpu_backend.cuda.chip import kernels_for, served_gpus
from gpu_backend.cuda.compile import CompileError, compile_module, source_root
from gpu_backend.cuda.driver import CudaError, CudaUnavailable, Device, Module, Stream, api
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.toolkit import ToolkitError
from ringbuffer.version import install

RUNS = 4  # of the parent graph, each a tail launch after the first
TIMEOUT_S = 5.0
WRITES_ORDERING = {0: "none", 100: "owner", 200: "all devices"}


class Finding(NamedTuple):
    name: str
    ok: bool
    detail: str
    mend: str  # what to do if not ok; "" otherwise


def probe(ordinal: int = 0) -> list[Finding]:
    """Findings in the order in which they depend on each other; ends early where the rest is moot."""
    try:
        device = Device(ordinal)
    except CudaUnavailable as error:
        mend = f"use one of these, with driver 580 or later: {served_gpus()}"
        return [Finding("GPU", False, str(error), mend)]
    major, minor = device.driver_version()
    gib = device.total_bytes / (1 << 30)
    findings = [
        Finding("GPU", True, f"{device.name}, {gib:.0f} GiB, {device.arch}", ""),
        Finding("kernels", True, kernels_for(device.capability, device.name), ""),
        Finding(
            "driver", (major, minor) >= (13, 0), f"CUDA {major}.{minor}", "install NVIDIA driver 580 or later"
        ),
    ]
    memory = DeviceMemory(device)
    try:
        module = Module(compile_module(source_root() / "kernels" / "probe.cu", device.arch, rdc=True))
    except (CompileError, ToolkitError, CudaError) as error:
        return [*findings, Finding("compiler", False, str(error), install("gpu"))]
    findings.append(
        _try("pinned mapped memory", lambda: _mapped_memory(memory, module), "allow locked memory: ulimit -l")
    )
    findings.append(
        _try(
            "device-side graph launch",
            lambda: _graph_launch(memory, module),
            "install NVIDIA driver 580 or later",
        )
    )
    if findings[-1].ok:  # a graph that never ends would make every release wait for it
        module.close()
        memory.close()
    findings.append(_gpudirect(device))
    return [finding._replace(mend="") if finding.ok else finding for finding in findings]


def _try(name: str, attempt: Callable[[], str], mend: str) -> Finding:
    """`attempt` returns what it saw and raises CudaError, AssertionError or TimeoutError."""
    try:
        return Finding(name, True, attempt(), "")
    except (CudaError, AssertionError, TimeoutError) as error:
        return Finding(name, False, str(error), mend)


def _mapped_memory(memory: DeviceMemory, module: Module) -> str:
    page = np.frombuffer(mmap.mmap(-1, mmap.PAGESIZE), np.uint64)
    address = memory.register_host(page.ctypes.data, page.nbytes)
    stream = Stream()
    module.kernel("blink_probe_increment").launch((1, 1, 1), (1, 1, 1), stream, address)
    _wait(stream)
    stream.close()
    memory.unregister_host(page.ctypes.data)
    if page[0] != 1:
        raise AssertionError(f"a kernel's store did not arrive: the word is {page[0]}")
    return "a kernel wrote to it"


def _graph_launch(memory: DeviceMemory, module: Module) -> str:
    counts = memory.allocate(12)
    stream = Stream()
    child, parent = Graph(), Graph()
    with child.capture(stream):
        module.kernel("blink_probe_child").launch((1, 1, 1), (1, 1, 1), stream, counts)
    child.instantiate(stream)
    with parent.capture(stream):
        arguments = (counts, child.executable, RUNS)
        module.kernel("blink_probe_parent").launch((1, 1, 1), (1, 1, 1), stream, *arguments)
    parent.instantiate(stream)
    parent.launch(stream)
    _wait(stream)
    parents, children, error = np.frombuffer(memory.read(counts, 12), np.uint32)
    for owner in (parent, child, stream):
        owner.close()
    if (parents, children, error) != (RUNS, RUNS, 0):
        raise AssertionError(f"{parents} of {RUNS} runs, {children} of {RUNS} children, error {error}")
    return f"{RUNS} fire-and-forget and {RUNS - 1} tail launches ran"


def _wait(stream: Stream) -> None:
    """Until the stream is idle. Raises TimeoutError, CudaError."""
    driver = api()
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        (status,) = driver.cuStreamQuery(stream.handle)
        if int(status) == 0:
            return
        if status != driver.CUresult.CUDA_ERROR_NOT_READY:
            raise CudaError(status.name, "while a kernel ran", "cuStreamQuery")
        if time.monotonic() > deadline:
            raise TimeoutError(f"not finished after {TIMEOUT_S:g} s")
        time.sleep(0.001)


def _gpudirect(device: Device) -> Finding:
    attribute = api().CUdevice_attribute
    rdma = device.attribute(attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED)
    flush = device.attribute(attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS)
    ordering = device.attribute(attribute.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
    dma_buf = device.attribute(attribute.CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)
    detail = (
        f"RDMA {'yes' if rdma else 'no'}, dma-buf {'yes' if dma_buf else 'no'}, flush options {flush:#x}, "
        f"writes ordering {WRITES_ORDERING.get(ordering, ordering)}; nobody has tried it yet"
    )
    mend = (
        "a ring in GPU memory over RDMA needs dma-buf, which nobody has tried; one in host memory needs none"
    )
    return Finding("GPUDirect RDMA", bool(dma_buf), detail, mend)
