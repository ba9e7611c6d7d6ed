"""What the GPU does at most, measured: bytes read by kernels that do nothing else, and cuBLAS with large
matrices of random numbers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.sustained import Sustained

from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.cuda.cublas import R_16BF, WORKSPACE_BYTES, Cublas
from gpu_backend.cuda.driver import Device, Kernel, Module, Stream
from gpu_backend.cuda.gemm import HALF_BYTES, Gemm
from gpu_backend.cuda.graph import Graph
from gpu_backend.cuda.memory import DeviceMemory

READ = Path(__file__).with_name("read.cu")
READ_BYTES = 8 << 30
COPY_BYTES = 12 << 14  # kStages * kStageBytes of read.cu
SQUARE = 8192  # rows and columns

# Microseconds of what the first enqueues and the second waits for, alone and, where wanted, over and over.
Measure = Callable[[Callable[[], object], Callable[[], None]], tuple[float, Sustained | None]]


@dataclass(frozen=True)
class Ceiling:
    """`amount` bytes or floating-point operations in `us`."""

    what: str
    amount: float
    us: float
    sustained: Sustained | None = None

    @property
    def tera_per_s(self) -> float:
        return self.amount / self.us / 1e6


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


def random_memory(device: Device, stream: Stream, memory: DeviceMemory, n_bytes: int) -> int:
    """Address of random bf16 numbers."""
    kernel = kernel_of(device, source_root() / "kernels" / "engine.cu", "blink::random_kernel<__nv_bfloat16>")
    address = memory.allocate(n_bytes)
    kernel.launch((1024, 1, 1), (256, 1, 1), stream, address, n_bytes // HALF_BYTES, 1, 0.0, 0.02)
    stream.synchronize()
    return address


def reads(device: Device, stream: Stream, measure: Measure) -> list[Ceiling]:
    """Through registers, which is what fractions refer to, and by bulk copies into shared memory."""
    memory = DeviceMemory(device)
    data, out = random_memory(device, stream, memory, READ_BYTES), memory.allocate(4)
    registers, copies = (kernel_of(device, READ, name) for name in ("read_kernel", "copy_kernel"))
    n, blocks = READ_BYTES // 16, device.n_multiprocessors
    launches = {
        "reads": lambda: registers.launch((2 * blocks, 1, 1), (512, 1, 1), stream, data, n, out),
        "copies": lambda: copies.launch((blocks, 1, 1), (1, 1, 1), stream, data, n, shared_bytes=COPY_BYTES),
    }
    found = [
        Ceiling(what, READ_BYTES, *_replayed(stream, launch, measure)) for what, launch in launches.items()
    ]
    memory.close()
    return found


def products(device: Device, stream: Stream, measure: Measure) -> Ceiling:
    memory = DeviceMemory(device)
    cublas = Cublas(stream, memory.allocate(WORKSPACE_BYTES))
    size = HALF_BYTES * SQUARE * SQUARE
    a, b = (random_memory(device, stream, memory, size) for _ in range(2))
    product = Gemm(a, b, memory.allocate(size), SQUARE, SQUARE, SQUARE)
    times = _replayed(stream, lambda: cublas.linear(product, R_16BF), measure)
    cublas.close()
    memory.close()
    return Ceiling("multiplies", 2 * SQUARE**3, *times)


def _replayed(
    stream: Stream, enqueue: Callable[[], object], measure: Measure
) -> tuple[float, Sustained | None]:
    """Of what `enqueue` puts on the stream, captured and replayed."""
    graph = Graph()
    with graph.capture(stream):
        enqueue()
    graph.instantiate(stream)
    times = measure(lambda: graph.launch(stream), stream.synchronize)
    graph.close()
    return times
