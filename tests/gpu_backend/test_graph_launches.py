"""scripts/bench/graph_launches.py: its arithmetic, its host's side, and what it asks of a driver."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from fake_cuda import run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from bench.graph_launches import NOT_STARTED, SOURCE, between_us, clock_of, host_library

from gpu_backend.cuda.compile import compile_module

SCRIPT = """
from bench import graph_launches
graph_launches.order = lambda first, event, then: print("order")
graph_launches.call = lambda name, *arguments: print(name)
bench = graph_launches.Bench(200)
{}
"""


def test_the_shortest_question_tells_the_time() -> None:
    asked = np.array([1000, 2000, 3000], np.uint64)
    told = np.array([501400, 502150, 503900], np.uint64)
    returned = np.array([1900, 2200, 3800], np.uint64)
    clock = clock_of(asked, told, returned)
    assert (clock.offset_ns, clock.uncertain_ns) == (500050, 100)


def test_a_launch_that_never_ran_is_no_time() -> None:
    asked = np.array([1000, 3000], np.uint64)
    assert between_us(asked, np.array([3500, 2000], np.uint64)).tolist() == [2.5, -1.0]
    with pytest.raises(ValueError, match="did not run"):
        between_us(asked, np.array([3500, NOT_STARTED], np.uint64))
    with pytest.raises(ValueError, match="did not run"):
        between_us(np.array([0, 1], np.uint64), np.array([5, 5], np.uint64))


def test_the_host_waits_for_each_launch_and_stops_at_the_first_error(tmp_path: Path) -> None:
    library = host_library(tmp_path)
    called: list[str] = []
    function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    wait = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

    def launched(executable: int, stream: int) -> int:
        called.append(f"launch {executable} {stream}")
        return 7 if len(called) == 5 else 0

    def waited(stream: int) -> int:
        called.append(f"wait {stream}")
        return 0

    asked, returned = np.zeros(4, np.uint64), np.zeros(4, np.uint64)
    functions = function(launched), wait(waited)
    pointers = (ctypes.cast(each, ctypes.c_void_p) for each in functions)
    assert library.host_launches(*pointers, 11, 22, 4, asked.ctypes.data, returned.ctypes.data) == 7
    assert called == [*["launch 11 22", "wait 22"] * 2, "launch 11 22"]
    assert (returned >= asked).all()
    assert asked[:3].all()
    assert not asked[3]


def test_the_kernels_compile_for_hopper() -> None:
    cubin = compile_module(SOURCE, "sm_90a", rdc=True)
    for kernel in (b"blink_node", b"blink_launcher", b"blink_window", b"blink_scan", b"blink_clock"):
        assert kernel in cubin


def test_nodes_of_a_layer_wait_for_all_of_the_layer_before(fake: Path, tmp_path: Path) -> None:
    """Eight nodes each; the driver does not run them, which is noticed."""
    script = SCRIPT.format(
        """
for layers in graph_launches.TOPOLOGIES.values():
    with bench.graphs(layers, 1):
        print("graph")
try:
    graph_launches.from_device(bench, (1,), 200, False)
except ValueError as error:
    print(error)
"""
    )
    out, log = run(fake, tmp_path, script)
    said = out.splitlines()
    graphs = " ".join(word for word in said if word in ("order", "graph")).split("graph")
    assert [part.count("order") for part in graphs[:3]] == [0, 10, 14]
    nodes = [call for call in log if call[0] == "launch" and call[1] == "blink_node"]
    assert len(nodes) == 3 * 8 + 3
    assert said[-1] == "a launch left no time: it did not run"


def test_every_kernel_gets_what_it_takes(fake: Path, tmp_path: Path) -> None:
    script = SCRIPT.format(
        """
print(graph_launches.scan(bench, 64, True)["slots"])
for attempt in (lambda: graph_launches.relaunch(bench, 120), bench.clock):
    try:
        attempt()
    except (ValueError, SystemExit) as error:
        print(error)
bench.close()
"""
    )
    out, log = run(fake, tmp_path, script)
    assert "64\na launch left no time: it did not run\nthe GPU did not tell its time" in out
    launched = {call[1] for call in log if call[0] == "launch"}
    assert {"blink_scan", "blink_window", "blink_clock", "blink_node"} <= launched
