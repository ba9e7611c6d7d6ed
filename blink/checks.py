"""What `blink doctor` looks at on this machine, the GPU apart (gpu_backend/cuda/probe.py)."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from blink.errors import CommandError
from blink.model_directory import demo_directory
from blink.sizes import format_bytes
from gpu_backend import host_library
from gpu_backend.cuda.probe import Finding
from gpu_backend.rdma import target
from nic_frontend import library, library_file
from nic_frontend.transport import verbs_library
from ringbuffer.region import SHM_DIRECTORY
from ringbuffer.version import install

MIN_PYTHON = (3, 11)
SMALL_SHM = 512 << 20  # the ring of 1024 slots and 131,072 tokens of context takes 300 MiB
FRONTEND_PACKAGES = (
    "numpy",
    "tokenizers",
    "jinja2",
    "uvicorn",
    "uvloop",
    "httptools",
    "prometheus-client",
    "msgspec",
)
REBUILD_RDMA = "apt-get install libibverbs-dev, then as for the other libraries"
REBUILD = "reinstall the package; in a checkout, run scripts/setup"
INFINIBAND = Path("/sys/class/infiniband")


def machine() -> Iterator[Finding]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    yield Finding(
        "system",
        sys.platform == "linux",
        f"{_distribution()}, {platform.machine()}, {os.cpu_count()} cores, {format_bytes(memory)}",
        "blink runs on Linux",
    )
    yield Finding(
        "Python",
        sys.version_info >= MIN_PYTHON,
        platform.python_version(),
        f"install Python {'.'.join(map(str, MIN_PYTHON))} or later",
    )
    yield _shared_memory()


def cpu_path() -> Iterator[Finding]:
    """What serving from the CPU emulation needs."""
    yield _attempt("backend library", REBUILD, lambda: loaded(host_library.host_library(), host_library.PATH))
    yield _attempt("frontend library", REBUILD, lambda: loaded(library.library(), library_file.PATH))
    yield _packages()
    yield _attempt("demo model", "reinstall the package", lambda: str(demo_directory()))


def build_tools() -> Iterator[Finding]:
    """Only building from source needs these."""
    for name, command, mend in (
        ("C++ compiler", "c++", "apt-get install g++"),
        ("CMake", "cmake", "pip install cmake ninja"),
    ):
        path = shutil.which(command)
        yield Finding(name, path is not None, _version(path) if path else "not found", mend)


def rdma_devices() -> list[str]:
    return sorted(entry.name for entry in INFINIBAND.iterdir()) if INFINIBAND.is_dir() else []


def rdma(devices: list[str]) -> Iterator[Finding]:
    """What a frontend on another host, and its backend, need beside devices."""
    yield Finding("RDMA devices", True, ", ".join(devices), "")
    for name, load, path in (
        ("RDMA, frontend", verbs_library.verbs_library, verbs_library.PATH),
        ("RDMA, backend", target.rdma_library, target.PATH),
    ):
        yield _attempt(name, REBUILD_RDMA, lambda load=load, path=path: loaded(load(), path))  # type: ignore[misc]


def loaded(_: ctypes.CDLL, path: Path) -> str:
    return str(path)


def _attempt(name: str, mend: str, attempt: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, attempt(), "")
    except (RuntimeError, OSError, CommandError) as error:
        return Finding(name, False, str(error), mend)


def _distribution() -> str:
    try:
        name = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        name = platform.system()
    return f"{name}, kernel {platform.release()}"


def _shared_memory() -> Finding:
    try:
        size = shutil.disk_usage(SHM_DIRECTORY)
    except OSError as error:
        return Finding(str(SHM_DIRECTORY), False, str(error), "mount a tmpfs there")
    return Finding(
        str(SHM_DIRECTORY),
        size.free >= SMALL_SHM and os.access(SHM_DIRECTORY, os.W_OK),
        f"{format_bytes(size.free)} free of {format_bytes(size.total)}",
        "enlarge it (in a container: --shm-size=1g), or serve with a smaller --ring-memory",
    )


def _packages() -> Finding:
    found, missing = [], []
    for name in FRONTEND_PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    detail = f"missing: {', '.join(missing)}" if missing else ", ".join(found)
    return Finding("packages", not missing, detail, install("frontend"))


def _version(command: str) -> str:
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    return next(iter(done.stdout.splitlines()), command)
