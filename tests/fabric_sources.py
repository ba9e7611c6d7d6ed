"""The link and the backend's side on a fabric without a device (verbs/fake_ibverbs.cpp): their sources,
from the root of the tree, and libraries of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import compilation
import pytest

from gpu_backend.rdma import target
from nic_frontend.transport import verbs_library

HEADERS = Path("/usr/include/infiniband/verbs.h")
needs_headers = pytest.mark.skipif(
    not HEADERS.exists(), reason=f"no {HEADERS}: apt-get install libibverbs-dev"
)

NATIVE = Path("nic_frontend/native")
FABRIC = ["tests/verbs/fake_ibverbs.cpp", "tests/verbs/fake_fabric.cpp"]
ENDPOINT = "ringbuffer/rdma/endpoint.cpp"
WORK_QUEUE = str(NATIVE / "verbs/work_queue.cpp")
WRITE_QUEUE = str(NATIVE / "verbs/write_queue.cpp")
LINK = [
    ENDPOINT,
    WORK_QUEUE,
    WRITE_QUEUE,
    *(str(NATIVE / "verbs" / name) for name in ("read_queue.cpp", "verbs_link.cpp")),
]
TARGET = [ENDPOINT, "gpu_backend/rdma/target.cpp"]


class FabricLibraries(NamedTuple):
    """The fabric, and on top of it what a frontend and a backend load."""

    fabric: Path
    link: Path
    target: Path

    def load(self) -> None:
        """From now on both planes of this process use the fabric in place of libibverbs."""
        verbs_library.PATH, target.PATH = self.link, self.target
        verbs_library.verbs_library.cache_clear()
        target.rdma_library.cache_clear()


def build_libraries() -> FabricLibraries:
    shared = ("-shared", "-fPIC", "-O1")
    fabric = compilation.build("fabric.so", FABRIC, *shared)
    link = compilation.build("verbs.so", [*LINK, str(fabric)], *shared)
    return FabricLibraries(fabric, link, compilation.build("rdma.so", [*TARGET, str(fabric)], *shared))
