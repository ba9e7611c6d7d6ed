"""The emulator of CUDA's threads, with every kernel."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from compilation import ROOT
from reference_ops import as_c

EMULATOR = Path("tests/kernels/emulator")
FLAGS = ["-O1", "-g0", "-shared", "-fPIC", "-fno-strict-aliasing", f"-I{EMULATOR}"]
FLAGS += ["-Werror", "-Wno-unknown-pragmas", "-Wno-psabi"]
FLAGS += ["-fsanitize=alignment,bounds", "-fno-sanitize-recover=all"]
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of malloc.h


@pytest.fixture(scope="module", autouse=True)
def memory_is_kept() -> Iterator[None]:
    """Arrays of megabytes that a test has freed serve the next: a quarter of the time of these tests went
    into the zeros that the kernel writes to memory which it gives again and again. A C library that has no
    such options is only slower."""
    c_library = ctypes.CDLL(None)
    if not hasattr(c_library, "mallopt"):
        yield
        return
    for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        c_library.mallopt(option, 1 << 30)
    yield
    for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
        c_library.mallopt(option, 128 << 10)  # as it was
    c_library.malloc_trim(0)


@pytest.fixture(scope="session")
def emulate(build_program: Callable[..., Path]) -> Callable[..., None]:
    """emulate(kernel, *arguments)"""
    # Those that take longest are compiled first.
    sources = sorted((ROOT / EMULATOR).glob("*.cpp"), key=lambda path: "skinny" not in path.name)
    return loaded(build_program("emulator.so", sources, *FLAGS))


@pytest.fixture(scope="session")
def emulate_gelu(build_program: Callable[..., Path]) -> Callable[..., None]:
    """The same of a model whose activation is GELU: the kernels that end in one."""
    sources = [ROOT / EMULATOR / f"{name}.cpp" for name in ("gated", "skinny_gemm")]
    return loaded(build_program("emulator_gelu.so", sources, *FLAGS, "-DBLINK_ACTIVATION=BLINK_GELU_TANH"))


@pytest.fixture(scope="session")
def emulate_clamped(build_program: Callable[..., Path]) -> Callable[..., None]:
    """The same of a model whose activation is the clamped SwiGLU."""
    sources = [ROOT / EMULATOR / f"{name}.cpp" for name in ("gated", "moe")]
    return loaded(
        build_program("emulator_clamped.so", sources, *FLAGS, "-DBLINK_ACTIVATION=BLINK_CLAMPED_SWIGLU")
    )


def loaded(path: Path) -> Callable[..., None]:
    library = ctypes.CDLL(str(path))
    return lambda kernel, *arguments: getattr(library, f"emulate_{kernel}")(*map(as_c, arguments))
