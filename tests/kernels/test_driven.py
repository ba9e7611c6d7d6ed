"""The host-driven schedulers' invariants (kernels/scheduler/driven/README.md) over emulated streams."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from limits import PROGRAM_S

DESIGNS = (
    "pipelined",
    pytest.param("blocking", marks=pytest.mark.slow),
    pytest.param("async", marks=pytest.mark.slow),
)
SOURCES = ["tests/kernels/simulator/driven.cpp"]


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PROGRAM_S)


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("seed", [7, pytest.param(8, marks=pytest.mark.slow)])
def test_every_token_is_right_whatever_the_delays(
    build_program: Callable[..., Path], design: str, seed: int
) -> None:
    """Each request gets the tokens that it gets from any other scheduler, under arrivals, cancels, end
    tokens, exhausted pages and lost leases, while streams run late: nothing is missing on the device, and
    nothing is rewritten in flight (D1 to D5)."""
    done = run(build_program("driven", SOURCES, "-O2"), design, "3", str(seed))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("design", DESIGNS)
def test_no_data_race_between_streams_and_policy(build_program: Callable[..., Path], design: str) -> None:
    done = run(build_program("driven-tsan", SOURCES, "-O1", "-fsanitize=thread"), design, "4", "9")
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert "WARNING: ThreadSanitizer" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("design", ["reuse", "unordered"])
def test_the_simulations_notice_a_wrong_design(build_program: Callable[..., Path], design: str) -> None:
    """Two steps in flight on one set, and streams that do not wait for each other (Q1 to Q3)."""
    done = run(build_program("driven", SOURCES, "-O2"), design, "3", "7")
    assert done.returncode == 1, done.stdout


@pytest.mark.parametrize("design", DESIGNS)
def test_the_driver_api_is_called_as_it_wants_to_be(
    build_program: Callable[..., Path], tmp_path: Path, design: str
) -> None:
    """Through the C interface and a driver library: arguments, contexts, releases; under AddressSanitizer."""
    fake = build_program("fake-libcuda", ["tests/kernels/simulator/fake_libcuda.cpp"], "-shared", "-fPIC")
    (tmp_path / "libcuda.so.1").symlink_to(fake)
    driven = "kernels/scheduler/driven"
    program = build_program(
        "driven-cuda",
        ["tests/kernels/simulator/driven_cuda.cpp", f"{driven}/driven.cpp", f"{driven}/cuda_runtime.cpp"],
        "-O0",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
    )
    done = subprocess.run(
        [program, design, "3"],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        env={"LD_LIBRARY_PATH": str(tmp_path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
