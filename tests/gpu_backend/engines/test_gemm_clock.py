"""The clock against a driver and a library that run nothing: what it tries, and what it makes of times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_cuda import Log, all_captures, captures, op, run
from test_native import CONFIG, SCRIPT

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

# Of three matrices alike; `seconds` of an algorithm's graph, round by round.
CLOCK = """
from gpu_backend.cuda.cublas import WORKSPACE_BYTES, CublasError
from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.gemm import Gemm
from gpu_backend.element import Element
from gpu_backend.engines.native.gemm_clock import GemmClock
from gpu_backend.engines.native.kernels import Kernels

device = Device()
memory, kernels = DeviceMemory(device), Kernels(device.arch, [], Element.BF16)
weights = [memory.allocate(1 << 21) for _ in range(3)]
gemm = Gemm(weights[0], 4096, 8192, 48, 1024, 1024, "add")
print(*weights)
clock = GemmClock(device, kernels, memory.allocate(WORKSPACE_BYTES), 131)
make = clock._graph
def named(owned, gemms, half, algorithm):
    graph = make(owned, gemms, half, algorithm)
    if graph is not None:
        graph.times = iter(TIMES[algorithm and algorithm[:1].decode()])
    return graph
clock._graph = named
clock._seconds = lambda graph: next(graph.times)
try:
    best = clock.fastest(gemm, 14, weights)
    print(best and best[:1].decode())
except CublasError as error:
    print(error)
clock.close()
kernels.close()
memory.close()
device.close()
"""
STEADY: dict[str | None, list[float]] = {None: [1.0] * 5, "a": [0.96] * 5, "b": [0.9] * 5, "c": [0.95] * 5}


def clocked(
    fake: Path, tmp_path: Path, times: dict[str | None, list[float]], n: int = 3, **environment: str
) -> tuple[str, list[int], Log]:
    """The answer, the matrices' addresses, the log."""
    script = f"TIMES = {times!r}\n{CLOCK}"
    out, log = run(fake, tmp_path, script, CONFIG, FAKE_CUBLAS_ALGORITHMS=str(n), **environment)
    addresses, answer = out.splitlines()
    return answer, [int(address) for address in addresses.split()], log


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times", "n", "best"),
    [
        (STEADY, 3, "b"),
        (STEADY, 1, "a"),
        ({**STEADY, "a": [0.98] * 5}, 1, "None"),  # too little to leave the library's own choice
        ({**STEADY, "a": [0.1, 1, 1, 1, 1]}, 1, "None"),  # while the GPU warmed up
        ({**STEADY, None: [2, 2, 1, 2, 2], "a": [1.0] * 5}, 1, "None"),  # disturbed in all rounds but one
    ],
)
def test_the_fastest_of_undisturbed_rounds_wins_by_a_margin(
    fake: Path, tmp_path: Path, times: dict[str | None, list[float]], n: int, best: str
) -> None:
    assert clocked(fake, tmp_path, times, n)[0] == best


def test_products_read_all_matrices_in_turn_and_touch_nothing_else(fake: Path, tmp_path: Path) -> None:
    """Each graph reads 512 MiB, far more than caches hold, as cold as in a step."""
    _, weights, log = clocked(fake, tmp_path, STEADY)
    allocations = {int(call[1]): int(call[2]) for call in log if call[0] == "alloc"}
    graphs = all_captures(log)
    assert [(call[0], call[1]) for call, *_ in graphs[1:]] == [("gemm_lt", name) for name in "abc"]
    assert {len(graph) for graph in graphs} == {256}
    for graph in graphs:
        at = [(call[8], call[11], call[14]) if call[0] == "gemm" else call[7:10] for call in graph]
        assert [int(w) for w, _, _ in at] == [weights[i % 3] for i in range(256)]
        ((x, out),) = {(int(x), int(out)) for _, x, out in at}
        assert not {x, out} & {4096, 8192, *weights}
        assert allocations[x] >= 2 * 48 * 1024
        assert allocations[out] >= 4 * 48 * 1024
    filled = [call for call in log if op(call) == "random"]
    assert [int.from_bytes(bytes.fromhex(call[7]), "little") for call in filled] == [x]


def test_a_clock_releases_what_it_took(fake: Path, tmp_path: Path) -> None:
    log = clocked(fake, tmp_path, STEADY)[2]
    kinds = [" ".join(call[:2]) if call[0] in ("destroy", "begin") else call[0] for call in log]
    assert kinds.count("begin capture") == kinds.count("destroy exec") == kinds.count("destroy graph") == 4
    assert kinds.count("destroy cublas") == 1
    assert "left" not in kinds
    assert sorted(call[1] for call in log if call[0] == "alloc") == sorted(
        call[1] for call in log if call[0] == "free"
    )
    assert kinds.index("destroy cublas") < len(kinds) - 1 - kinds[::-1].index("free")


def test_an_algorithm_that_fails_is_no_candidate(fake: Path, tmp_path: Path) -> None:
    answer, _, log = clocked(fake, tmp_path, STEADY, FAKE_CUBLAS_FAILS="b")
    assert answer == "c"
    assert [call[0] for call in log].count("left") == 0


@pytest.mark.parametrize(
    ("environment", "answer"),
    [
        ({"FAKE_CUBLAS_STATUS": "15"}, "None"),  # CUBLAS_STATUS_NOT_SUPPORTED: it knows of none
        ({"FAKE_CUBLAS_STATUS": "1"}, "cublasLtMatmulAlgoGetHeuristic: cublasStatus_t 1"),
        ({"FAKE_CUBLAS_LAST_STATE": "1"}, "a"),  # of a and b
    ],
)
def test_what_the_library_says_of_its_algorithms(
    fake: Path, tmp_path: Path, environment: dict[str, str], answer: str
) -> None:
    assert clocked(fake, tmp_path, STEADY, 2, **environment)[0] == answer


# In an engine 'b' is the fastest of three.
CLOCKED = """
from gpu_backend.engines.native import gemm_clock
make = gemm_clock.GemmClock._graph
def named(self, owned, gemms, half, algorithm):
    graph = make(self, owned, gemms, half, algorithm)
    graph.seconds = {None: 1.0, b"a": 0.98, b"b": 0.9, b"c": 0.95}[algorithm and algorithm[:1]]
    return graph
gemm_clock.GemmClock._graph = named
gemm_clock.GemmClock._seconds = lambda self, graph: graph.seconds
"""


@pytest.mark.slow
def test_a_step_multiplies_by_the_algorithm_that_was_fastest(fake: Path, tmp_path: Path) -> None:
    """The first start measures, the second knows; what both capture last is the same."""
    config = {**CONFIG, "hidden_size": 2048}  # of whose matrices o, of 1.5 MiB, is the smallest
    starts = []
    for n in (3, 0):
        _, log = run(fake, tmp_path, CLOCKED + SCRIPT, config, FAKE_CUBLAS_ALGORITHMS=str(n))
        begun = [call[:2] for call in log].count(["begin", "capture"])
        kinds = [" ".join(call[:2]) for call in log]
        assert kinds.count("destroy graph") == begun
        assert {call[1] for call in log if call[0] == "multiprocessors"} == {"131"}
        assert [call[1] for call in log if call[0] == "left"] == []
        check_places(log)
        starts.append((begun, [[op(call) for call in step] for step in captures(log)]))
    (first_begun, first), (second_begun, second) = starts
    assert second_begun == len(second) == 36
    assert first_begun > len(first) > 36
    assert [step for step in first if "gemm" not in step] == second
    assert {op for step in second for op in step if op.startswith("gemm")} == {"gemm_lt"}


def check_places(log: Log) -> None:
    """weight [n_out][n_in], x [rows][n_in], out [rows][n_out], which is added to where it is the residual."""
    allocations = [(int(call[1]), int(call[2])) for call in log if call[0] == "alloc"]

    def room(address: int) -> int:
        return max(start + size - address for start, size in allocations if start <= address < start + size)

    for call in (call for step in captures(log) for call in step if call[0] == "gemm_lt"):
        n_out, rows, n_in = map(int, call[2:5])
        weight, x, out, out_type = map(int, call[7:11])
        is_fp32, is_added = out_type == 0, n_out == 2048
        assert (call[1], call[5], call[6]) == ("b", "1", "1" if is_added else "0")
        assert is_fp32 == (is_added or n_out == CONFIG["vocab_size"])
        assert room(weight) >= 2 * n_in * n_out
        assert room(x) >= 2 * rows * n_in
        assert room(out) >= (4 if is_fp32 else 2) * rows * n_out


def test_without_memory_for_a_clock_the_library_chooses(fake: Path, tmp_path: Path) -> None:
    """The start goes on, and keeps nothing."""
    no_room = """
from gpu_backend.engines.native import gemm_clock
gemm_clock.OUT_BYTES = 1 << 62
"""
    config: dict[str, Any] = {**CONFIG, "hidden_size": 2048}
    _, log = run(fake, tmp_path, no_room + SCRIPT, config, FAKE_CUBLAS_ALGORITHMS="3")
    assert len(captures(log)) == 36
    assert not [call for call in log if call[0] == "gemm_lt"]
    assert not (tmp_path / "cache").exists()
    assert sorted(call[1] for call in log if call[0] == "alloc") == sorted(
        call[1] for call in log if call[0] == "free"
    )


def test_a_library_that_cannot_be_set_up_is_released(fake: Path, tmp_path: Path) -> None:
    script = """
from gpu_backend.cuda.cublas import Cublas, CublasError
from gpu_backend.cuda.driver import Device, Stream
device = Device()
stream = Stream()
try:
    Cublas(stream, 4096, 131)
except CublasError as error:
    print(error)
stream.close()
device.close()
"""
    out, log = run(fake, tmp_path, script, FAKE_CUBLAS_NO_WORKSPACE="1")
    assert out == "cublasSetWorkspace_v2: cublasStatus_t 1\n"
    assert [call[1] for call in log if call[0] == "destroy"] == ["cublas", "stream"]
