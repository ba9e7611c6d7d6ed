"""What the GPU does at most, measured: bytes read by a kernel that does nothing else, and cuBLAS with large
matrices of random numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.cuda.cublas import R_16BF, WORKSPACE_BYTES, Cublas
from gpu_backend.cuda.driver import Device, Kernel, Module, Stream
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.product import HALF_BYTES, Product

READ = Path(__file__).with_name("read.cu")
READ_BYTES = 8 << 30
SQUARE = 8192  # rows and columns


def kernel_of(device: Device, source: Path, name: str) -> Kernel:
    cubin, symbols = compile_templates(source, device.arch, [name])
    return Module(cubin).kernel(symbols[name])


def time_us(enqueue: Callable[[], object], wait: Callable[[], None], seconds: float = 0.03) -> float:
    """Mean of back-to-back replays, the better of two series."""
    best, replays = float("inf"), 3
    for _ in range(3):  # the first warms up
        start = time.monotonic()
        for _ in range(replays):
            enqueue()
        wait()
        mean = (time.monotonic() - start) / replays
        best = min(best, mean) if replays > 3 else best
        replays = max(4, int(seconds / mean))
    return best * 1e6


def graph_us(stream: Stream, enqueue: Callable[[], object]) -> float:
    """Of what `enqueue` puts on the stream, captured and replayed."""
    graph = Graph()
    with graph.capture(stream):
        enqueue()
    graph.instantiate(stream)
    us = time_us(lambda: graph.launch(stream), stream.synchronize)
    graph.close()
    return us


def random_memory(device: Device, stream: Stream, memory: DeviceMemory, n_bytes: int) -> int:
    """Address of random bf16 numbers."""
    kernel = kernel_of(device, source_root() / "kernels" / "engine.cu", "blink::random_kernel<__nv_bfloat16>")
    address = memory.allocate(n_bytes)
    kernel.launch((1024, 1, 1), (256, 1, 1), stream, address, n_bytes // HALF_BYTES, 1, 0.0, 0.02)
    stream.synchronize()
    return address


def read_tb_s(device: Device, stream: Stream) -> float:
    kernel = kernel_of(device, READ, "read_kernel")
    memory = DeviceMemory(device)
    data, out = random_memory(device, stream, memory, READ_BYTES), memory.allocate(4)
    blocks = 2 * device.n_multiprocessors
    arguments = (data, READ_BYTES // 16, out)
    us = graph_us(stream, lambda: kernel.launch((blocks, 1, 1), (512, 1, 1), stream, *arguments))
    memory.close()
    return READ_BYTES / us / 1e6


def matrix_tflops(device: Device, stream: Stream) -> float:
    memory = DeviceMemory(device)
    cublas = Cublas(stream, memory.allocate(WORKSPACE_BYTES))
    size = HALF_BYTES * SQUARE * SQUARE
    a, b = (random_memory(device, stream, memory, size) for _ in range(2))
    c = memory.allocate(size)
    us = graph_us(stream, lambda: cublas.linear(Product(a, b, c, SQUARE, SQUARE, SQUARE), R_16BF))
    cublas.close()
    memory.close()
    return 2 * SQUARE**3 / us / 1e6
