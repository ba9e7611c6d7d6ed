"""The link over RDMA on a fabric without a device (fake_ibverbs.cpp); needs the headers of libibverbs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fabric_sources import FABRIC, LINK, NATIVE, TARGET
from fixtures import *  # noqa: F403

from gpu_backend.rdma import target
from nic_frontend.transport import verbs_library

HEADERS = Path("/usr/include/infiniband/verbs.h")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not HEADERS.exists():
        here = Path(__file__).parent
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=f"no {HEADERS}: apt-get install libibverbs-dev"))


@pytest.fixture(scope="session")
def build_stress(build_program: Callable[..., Path]) -> Callable[..., Path]:
    """build_stress(name, *flags, link): link_stress with these compiler flags and sources of the link."""
    root = Path(__file__).resolve().parents[2]
    reader = [str(NATIVE / path.name) for path in sorted((root / NATIVE).glob("*.cpp"))]
    others = ["tests/verbs/link_stress.cpp", *FABRIC, *reader, "gpu_backend/rdma/target.cpp"]

    def build(name: str, *flags: str, link: list[str] = LINK) -> Path:
        return build_program(name, [*others, *link], "-O1", *flags)

    return build


@pytest.fixture(scope="session")
def fabric_libraries(build_program: Callable[..., Path]) -> tuple[Path, Path, Path]:
    """The fabric, and the link and the backend's side on top of it, as shared libraries."""
    shared = ("-shared", "-fPIC", "-O1")
    fabric = build_program("fabric.so", FABRIC, *shared)
    link = build_program("verbs.so", [*LINK, str(fabric)], *shared)
    return fabric, link, build_program("rdma.so", [*TARGET, str(fabric)], *shared)


@pytest.fixture
def fabric(
    fabric_libraries: tuple[Path, Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[ctypes.CDLL]:
    """Both planes use the fabric in place of libibverbs; the value steers it (fake_ibverbs.h)."""
    fabric, link, passive = fabric_libraries
    monkeypatch.setattr(verbs_library, "PATH", link)
    monkeypatch.setattr(target, "PATH", passive)
    verbs_library.verbs_library.cache_clear()
    target.rdma_library.cache_clear()
    steering = ctypes.CDLL(str(fabric))
    yield steering
    steering.fake_verbs_break_one_in(0)
    verbs_library.verbs_library.cache_clear()
    target.rdma_library.cache_clear()
