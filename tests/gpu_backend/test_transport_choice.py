"""What a backend refuses before it loads anything."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend, BackendError
from gpu_backend.options import BackendOptions


def refusal(**changes: object) -> str:
    ring = f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}"
    options = BackendOptions(demo_directory(), ring=ring, device="cpu", **changes)  # type: ignore[arg-type]
    with pytest.raises(BackendError) as caught:
        Backend(options).start()
    assert not Path(ring).exists()
    return str(caught.value)


def test_gpu_memory_needs_a_gpu() -> None:
    assert refusal(transport="cuda_ipc", slots=16) == (
        "the transport cuda_ipc needs a GPU: without one, --transport is shm"
    )


def test_a_ring_holds_a_request_of_the_whole_context() -> None:
    said = refusal(slots=16, ring_memory=12 * 2048 - 1)
    assert said.startswith("ring-memory is 24575 bytes, it must be at least 24576: each of 1 frontend(s)")
