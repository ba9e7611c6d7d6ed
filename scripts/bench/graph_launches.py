#!/usr/bin/env python3
"""What the scheduler's mechanisms cost by themselves: graph launches, its relaunch, its look at the ring.

    python scripts/bench/graph_launches.py --json build/bench/graph-launches.json

Graph launches are those of the Blink paper's section 4.2: from the host, from the device as fire-and-forget,
and from the device as a tail launch, of graphs with eight nodes in a straight line, as fork and join (one,
six beside each other, one), and all beside each other. The paper does not say how many nodes its graphs have.
A node does next to nothing. `start` is from the moment before the call to the first instruction of the graph,
and `call` is how long the call takes. Each launch waits until the one before has ended. Where the host
launches, its clock is compared with the GPU's before every hundred launches; the comparison is uncertain by
`clock_us`. Nothing of Python is in what is timed (host_launches.cpp).

A relaunch is the tail launch with which the scheduler replaces itself at the end of its launch window: from
the moment before it to the first instruction of the next execution, behind no launch and behind a window of
them. A scan is the scheduler's own (kernels/scheduler/scan.h), of slots of which none has changed, with the
barrier in which its threads agree on that, in device memory and in pinned host memory.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402

from blink.bench.metrics import summary  # noqa: E402
from blink.bench.tables import table  # noqa: E402
from blink.files import CheckedPath, writable_file  # noqa: E402
from blink.flags import checked, count  # noqa: E402
from gpu_backend.cuda.compile import compile_module  # noqa: E402
from gpu_backend.cuda.driver import Device, Module, Stream, call  # noqa: E402
from gpu_backend.cuda.graph import Graph  # noqa: E402
from gpu_backend.cuda.memory import DeviceMemory, PinnedMemory  # noqa: E402
from gpu_backend.scheduler_abi import LAUNCH_WINDOW, SCHEDULER_THREADS  # noqa: E402

SOURCE = Path(__file__).with_name("graph_launches.cu")
HOST_SOURCE = Path(__file__).with_name("host_launches.cpp")
HOST_FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC")
# Nodes of each layer; a node waits for all nodes of the layer before.
TOPOLOGIES = {"straight line": (1,) * 8, "fork and join": (1, 6, 1), "parallel": (8,)}
ONE_NODE = (1,)
BRANCHES = max(map(max, TOPOLOGIES.values())) - 1  # streams beside the first, while a graph is captured
WITHOUT_TIMES = 2  # CU_EVENT_DISABLE_TIMING
EXECUTABLES = 3  # of one graph, in rotation, as the scheduler has them
BATCH = 100  # launches of one execution of a launcher, of at most 120; or between two looks at the clock
CLOCK_ROUNDS = 50
RELAUNCHES = 200
SCANS = 2000
SLOTS = (64, 1024, 4096)
PATIENCE_S = 30.0
NOT_STARTED = 2**64 - 1
Runs = np.dtype(
    [("completed", "<u8"), ("leaves", "<u4"), ("error", "<u4"), ("refused", "<u4"), ("capacity", "<u4")]
)
Ns = NDArray[np.uint64]


@dataclass(frozen=True)
class Clock:
    """The GPU's time is the host's and `offset_ns`, or differs from that by `uncertain_ns` at most."""

    offset_ns: int
    uncertain_ns: int


def clock_of(asked: Ns, told: Ns, returned: Ns) -> Clock:
    """From questions of the host and answers of the GPU: the shortest round tells most."""
    trips = returned.astype(np.int64) - asked.astype(np.int64)
    best = int(trips.argmin())
    middle = int(asked[best]) + int(trips[best]) // 2
    return Clock(int(told[best]) - middle, int(trips[best]) // 2)


def between_us(begin: Ns, end: Ns) -> NDArray[np.float64]:
    """Raises ValueError where something never happened."""
    if (end == NOT_STARTED).any() or (begin == 0).any():
        raise ValueError("a launch left no time: it did not run")
    return (end.astype(np.int64) - begin.astype(np.int64)) / 1e3


def host_library(directory: Path) -> ctypes.CDLL:
    """host_launches.cpp, compiled into `directory`, where others may compile and load it meanwhile."""
    directory.mkdir(parents=True, exist_ok=True)
    path, own = (directory / f"host_launches{name}.so" for name in ("", f".{os.getpid()}"))
    subprocess.run(["c++", *HOST_FLAGS, str(HOST_SOURCE), "-o", str(own)], check=True)
    own.replace(path)
    library = ctypes.CDLL(str(path))
    pointer, u32 = ctypes.c_void_p, ctypes.c_uint32
    library.host_launches.argtypes = [pointer, pointer, pointer, pointer, u32, pointer, pointer]
    library.compare_clocks.argtypes = [pointer, pointer, u32, pointer, pointer, pointer]
    library.compare_clocks.restype = u32
    return library


class Bench:
    """A GPU, the kernels, and the arrays in which they leave times: one entry a run."""

    def __init__(self, capacity: int) -> None:
        """`capacity`: runs of graphs since a reset of which times are kept."""
        self.capacity = max(capacity, RELAUNCHES + 1)
        self.device = Device()
        self.stream = Stream()
        self.memory, self.pinned = DeviceMemory(self.device), PinnedMemory(self.device)
        self.module = Module(compile_module(SOURCE, self.device.arch, rdc=True))
        self.host = host_library(ROOT / "build" / "bench")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.runs = self.memory.allocate(Runs.itemsize)
        self.started, self.asked, self.returned, self.begun = (
            self.memory.allocate(8 * self.capacity) for _ in range(4)
        )
        self.past = self.memory.allocate(4)
        self._words = self.pinned.allocate(4 * 8)  # the host's question, and the GPU's answer
        self._branches = [(Stream(), call("cuEventCreate", WITHOUT_TIMES)) for _ in range(BRANCHES)]

    def reset(self) -> None:
        runs = np.zeros((), Runs)
        runs["capacity"] = self.capacity
        self.memory.write(self.runs, runs.tobytes())
        self.memory.write(self.started, b"\xff" * (8 * self.capacity))
        for address in (self.asked, self.returned, self.begun):
            self.memory.write(address, bytes(8 * self.capacity))
        self.memory.write(self.past, bytes(4))

    def times(self, address: int, n: int) -> Ns:
        return np.frombuffer(self.memory.read(address, 8 * n), np.uint64)

    def state(self) -> Any:
        """Of the runs since `reset`. Raises SystemExit where a launch failed."""
        runs = np.frombuffer(self.memory.read(self.runs, Runs.itemsize), Runs)[0]
        if runs["error"]:
            raise SystemExit(f"a launch from the device failed with error {runs['error']}")
        return runs

    def wait(self) -> None:
        if not self.stream.wait(PATIENCE_S):
            raise SystemExit(f"the GPU was not done after {PATIENCE_S:g} s")
        if error := self.stream.error():
            raise SystemExit(f"the GPU failed with error {error}")

    @contextmanager
    def graphs(self, layers: Sequence[int], n: int) -> Iterator[list[Graph]]:
        """`n` executables of a graph with so many nodes in each layer."""
        with ExitStack() as owned:
            found = []
            for _ in range(n):
                graph = Graph()
                owned.callback(graph.close)
                with graph.capture(self.stream):
                    self._enqueue_layers(layers)
                graph.instantiate(self.stream)
                found.append(graph)
            yield found

    def _enqueue_layers(self, layers: Sequence[int]) -> None:
        """Each layer's nodes on streams of their own, which begin and end together."""
        node = self.module.kernel("blink_node")
        for index, width in enumerate(layers):
            branches = self._branches[: width - 1]
            leaves = width if index == len(layers) - 1 else 0
            for stream, event in branches:
                order(self.stream, event, stream)
            for stream in (self.stream, *(stream for stream, _ in branches)):
                arguments = self.runs, self.started, int(index == 0), leaves
                node.launch((1, 1, 1), (32, 1, 1), stream, *arguments)
            for stream, event in branches:
                order(stream, event, self.stream)

    @contextmanager
    def captured(self, kernel: str, threads: int, *arguments: int) -> Iterator[Graph]:
        """A graph of one kernel with one block, as the scheduler is."""
        graph = Graph()
        with graph.capture(self.stream):
            self.module.kernel(kernel).launch((1, 1, 1), (threads, 1, 1), self.stream, *arguments)
        graph.instantiate(self.stream)
        try:
            yield graph
        finally:
            graph.close()

    def clock(self) -> Clock:
        self.pinned.write(self._words, bytes(4 * 8))
        question, answer = self._words, self._words + 16
        times = [np.zeros(CLOCK_ROUNDS, np.uint64) for _ in range(3)]
        kernel = self.module.kernel("blink_clock")
        kernel.launch((1, 1, 1), (1, 1, 1), self.stream, question, answer, CLOCK_ROUNDS)
        places = [array.ctypes.data for array in times]
        answered = self.host.compare_clocks(question, answer, CLOCK_ROUNDS, *places)
        self.wait()
        if answered != CLOCK_ROUNDS:
            raise SystemExit("the GPU did not tell its time within a second")
        return clock_of(*times)

    def close(self) -> None:
        self.module.close()
        self.memory.close()
        self.pinned.close()
        for stream, event in self._branches:
            call("cuEventDestroy", event)
            stream.close()
        self.stream.close()
        self.device.close()


def order(first: Stream, event: Any, then: Stream) -> None:
    """What is put on `then` from now on waits for what is on `first`."""
    call("cuEventRecord", event, first.handle)
    call("cuStreamWaitEvent", then.handle, event, 0)


def from_device(bench: Bench, layers: Sequence[int], n: int, is_tail: bool) -> dict[str, Any]:
    bench.reset()
    batch = 1 if is_tail else BATCH
    with bench.graphs(layers, EXECUTABLES) as graphs:
        handles = [graph.executable for graph in graphs]
        arguments = bench.runs, bench.asked, bench.returned, *handles, batch, int(is_tail)
        with bench.captured("blink_launcher", 1, *arguments) as launcher:
            for _ in range(n // batch):
                launcher.launch(bench.stream)
                bench.wait()
    refused = int(bench.state()["refused"])
    ran = n // batch * batch
    asked = bench.times(bench.asked, ran)
    return {
        "start_us": summary(between_us(asked, bench.times(bench.started, ran))),
        "call_us": summary(between_us(asked, bench.times(bench.returned, ran))),
        "refused": refused,
    }


def from_host(bench: Bench, layers: Sequence[int], n: int) -> dict[str, Any]:
    bench.reset()
    launch, synchronize = (
        ctypes.cast(getattr(bench.driver, name), ctypes.c_void_p)
        for name in ("cuGraphLaunch", "cuStreamSynchronize")
    )
    asked, returned = np.zeros(n, np.uint64), np.zeros(n, np.uint64)
    moved = np.zeros(n, np.int64)
    uncertain = 0
    with bench.graphs(layers, 1) as (graph,):
        for first in range(0, n, BATCH):
            clock = bench.clock()
            uncertain = max(uncertain, clock.uncertain_ns)
            places = asked[first:].ctypes.data, returned[first:].ctypes.data
            on = graph.executable, bench.stream.address
            size = min(BATCH, n - first)
            if error := bench.host.host_launches(launch, synchronize, *on, size, *places):
                raise SystemExit(f"a launch from the host failed with error {error}")
            moved[first : first + size] = clock.offset_ns
    bench.state()
    on_gpu = (asked.astype(np.int64) + moved).astype(np.uint64)
    return {
        "start_us": summary(between_us(on_gpu, bench.times(bench.started, n))),
        "call_us": summary(between_us(asked, returned)),
        "clock_us": uncertain / 1e3,
    }


def launches(bench: Bench, n: int) -> list[dict[str, Any]]:
    rows = []
    for name, layers in TOPOLOGIES.items():
        row = {"topology": name, "nodes": sum(layers)}
        rows.append(row | {"launch": "host"} | from_host(bench, layers, n))
        for how, is_tail in (("fire and forget", False), ("tail", True)):
            rows.append(row | {"launch": how} | from_device(bench, layers, n, is_tail))
    return rows


def relaunch(bench: Bench, window: int) -> dict[str, Any]:
    """Of the scheduler's kernel by itself, after so many launches."""
    bench.reset()
    with bench.graphs(ONE_NODE, EXECUTABLES) as graphs:
        handles = [graph.executable for graph in graphs]
        arguments = bench.runs, bench.begun, bench.asked, bench.past, *handles, window, RELAUNCHES + 1
        with bench.captured("blink_window", SCHEDULER_THREADS, *arguments) as scheduler:
            scheduler.launch(bench.stream)
            bench.wait()
    bench.state()
    asked, begun = bench.times(bench.asked, RELAUNCHES), bench.times(bench.begun, RELAUNCHES + 1)
    took = between_us(asked, begun[1:])
    a_launch = float(took.mean()) / window if window else None
    return {"launches_before": window, "relaunch_us": summary(took), "us_a_launch": a_launch}


def scan(bench: Bench, slots: int, is_host_memory: bool) -> dict[str, Any]:
    memory = bench.pinned if is_host_memory else bench.memory
    words, seen = memory.allocate(8 * slots), bench.memory.allocate(8 * slots)
    took, found = bench.memory.allocate(8 * SCANS), bench.memory.allocate(4)
    kernel = bench.module.kernel("blink_scan")
    kernel.launch((1, 1, 1), (SCHEDULER_THREADS, 1, 1), bench.stream, words, seen, slots, SCANS, took, found)
    bench.wait()
    if changed := int.from_bytes(bench.memory.read(found, 4), "little"):
        raise SystemExit(f"a thread of the scan found {changed} changed slots where there were none")
    rounds = np.frombuffer(bench.memory.read(took, 8 * SCANS), np.uint64)
    return {
        "slots": slots,
        "memory": "host, pinned" if is_host_memory else "device",
        "scan_us": summary(rounds / 1e3),
    }


def report(record: dict[str, Any]) -> str:
    def cells(values: dict[str, float]) -> list[str]:
        return [f"{values[name]:.2f}" for name in ("p50", "p99")] + [str(int(values["n"]))]

    launched = [
        [row["topology"], row["launch"], *cells(row["start_us"])[:2], *cells(row["call_us"])]
        for row in record["launches"]
    ]
    relaunched = [[str(row["launches_before"]), *cells(row["relaunch_us"])] for row in record["relaunches"]]
    scanned = [[str(row["slots"]), row["memory"], *cells(row["scan_us"])] for row in record["scans"]]
    return "\n\n".join(
        (
            "{machine}, {date} {commit}; microseconds".format(**record),
            table(("graph", "launch", "start p50", "p99", "call p50", "p99", "n"), launched),
            table(("launches before", "relaunch p50", "p99", "n"), relaunched),
            table(("slots", "memory", "scan p50", "p99", "n"), scanned),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--n", type=checked(count), default=1000, help="launches of each kind (default: 1000)"
    )
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--json", action=CheckedPath, check=writable_file, metavar="FILE")
    options = parser.parse_args()
    if options.n % BATCH:
        parser.error(f"--n: {options.n} is not a multiple of {BATCH}")
    bench = Bench(options.n)
    record = {
        **origin("graph launches", bench.device.name, options.commit),
        "launches": launches(bench, options.n),
        "relaunches": [relaunch(bench, window) for window in (0, LAUNCH_WINDOW)],
        "scans": [scan(bench, slots, is_host) for is_host in (False, True) for slots in SLOTS],
    }
    bench.close()
    print(report(record))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
