"""The link over RDMA on a fabric without a device (fake_ibverbs.cpp); needs the headers of libibverbs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fabric_sources import FABRIC, LINK, NATIVE, FabricLibraries, build_libraries, needs_headers
from fixtures import *  # noqa: F403
from limits import WAIT_S

from gpu_backend.rdma import target
from nic_frontend.transport import verbs_library


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(needs_headers)


@pytest.fixture(autouse=True)
def patient_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease over the fabric lasts for a second, for which a busy machine may keep a thread waiting."""
    monkeypatch.setattr("ringbuffer.abi.LEASE_TIMEOUT_NS", int(1e9 * WAIT_S))


@pytest.fixture(scope="session")
def build_link_program(build_program: Callable[..., Path]) -> Callable[..., Path]:
    """build_link_program(source, *flags, name, link): a program of this folder over the fabric, with these
    compiler flags and sources of the link."""
    root = Path(__file__).resolve().parents[2]
    reader = [str(NATIVE / path.name) for path in sorted((root / NATIVE).glob("*.cpp"))]
    others = [*FABRIC, *reader, "gpu_backend/rdma/target.cpp"]

    def build(source: str, *flags: str, name: str = "", link: list[str] = LINK) -> Path:
        return build_program(name or source, [f"tests/verbs/{source}.cpp", *others, *link], "-O1", *flags)

    return build


@pytest.fixture(scope="session")
def fabric_libraries() -> FabricLibraries:
    return build_libraries()


@pytest.fixture
def fabric(fabric_libraries: FabricLibraries, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """Both planes use the fabric in place of libibverbs; the value steers it (fake_ibverbs.h)."""
    for module in (verbs_library, target):  # put back at the end
        monkeypatch.setattr(module, "PATH", module.PATH)
    fabric_libraries.load()
    steering = ctypes.CDLL(str(fabric_libraries.fabric))
    yield steering
    steering.fake_verbs_break_one_in(0)
    steering.fake_verbs_no_dmabuf(0)
    steering.fake_verbs_delay_writes(0)
    verbs_library.verbs_library.cache_clear()
    target.rdma_library.cache_clear()
