"""The link over RDMA on a fabric without a device (fake_ibverbs.cpp); needs the headers of libibverbs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fabric_sources import FABRIC, LINK, NATIVE

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
    others = ["tests/verbs/link_stress.cpp", FABRIC, *reader, "gpu_backend/rdma/target.cpp"]

    def build(name: str, *flags: str, link: list[str] = LINK) -> Path:
        return build_program(name, [*others, *link], "-O1", *flags)

    return build
