"""Which sources make up the link and the backend's side, from the root of the tree."""

from __future__ import annotations

from pathlib import Path

NATIVE = Path("nic_frontend/native")
FABRIC = ["tests/verbs/fake_ibverbs.cpp", "tests/verbs/fake_fabric.cpp"]
ENDPOINT = "ringbuffer/rdma/endpoint.cpp"
CHANNEL = str(NATIVE / "verbs/channel.cpp")
LINK = [ENDPOINT, CHANNEL, str(NATIVE / "verbs/verbs_link.cpp")]
TARGET = [ENDPOINT, "gpu_backend/rdma/target.cpp"]
