"""What a backend refuses before it loads anything, and how much room a ring in GPU memory has for prompts."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend, BackendError
from gpu_backend.options import BackendOptions, prompt_capacity
from ringbuffer.abi import COPY_ENGINE_BYTES


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


def test_kv_events_need_a_prefix_cache() -> None:
    assert "there is none with --no-prefix-cache" in refusal(kv_events=64, prefix_cache=False)
    assert "there is none with" in refusal(kv_events=64, scheduler="async")


@pytest.mark.parametrize(("context", "tokens"), [(16, 8192), (8192, 8192), (131072, 131072)])
def test_every_slot_of_a_ring_in_gpu_memory_takes_a_padded_copy(context: int, tokens: int) -> None:
    """U2."""
    assert prompt_capacity("cuda_ipc", context) == tokens
    assert prompt_capacity("cuda_ipc", context) * 4 >= COPY_ENGINE_BYTES
    assert prompt_capacity("shm", context) == context
