"""How large a ring is: what each lease's heaps hold at least, by default, and with a given memory."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_backend.engines.base import Limits
from gpu_backend.options import BackendOptions
from gpu_backend.ring_sizes import LARGEST_DEFAULT, USUAL_TOKENS, ring_geometry
from ringbuffer.abi import COPY_ENGINE_BYTES
from ringbuffer.region import Geometry


def ring(context: int, batch: int = 128, **changes: object) -> Geometry:
    options = BackendOptions(Path("/model"), **changes)  # type: ignore[arg-type]
    return ring_geometry(options, Limits(batch, context, 2048, 16, 16, 4096))


def heap_bytes(geometry: Geometry) -> int:
    return geometry.n_leases * (4 * geometry.prompt_heap + 8 * geometry.output_heap)


@given(
    st.integers(2, 1_000_000), st.integers(1, 1024), st.integers(1, 2048), st.integers(1, 32),
    st.sampled_from(["shm", "cuda_ipc"]), st.one_of(st.none(), st.integers(1, 1 << 34)),
)  # fmt: skip
def test_a_request_of_the_whole_context_always_fits(
    context: int, batch: int, slots: int, leases: int, transport: str, memory: int | None
) -> None:
    with contextlib.suppress(ValueError):  # too many slots, or too little memory
        found = ring(context, batch, slots=slots, leases=leases, transport=transport, ring_memory=memory)
        assert found.prompt_heap >= context
        assert found.output_heap >= context
        assert transport == "shm" or found.prompt_heap * 4 >= COPY_ENGINE_BYTES
        least = leases * 12 * (max(context, USUAL_TOKENS) + 31)
        assert heap_bytes(found) <= max(least, LARGEST_DEFAULT if memory is None else memory)


def test_a_short_context_has_room_for_every_slot() -> None:
    assert ring(8192, slots=1024) == Geometry(1024, 1, 1024 * 8192, 1024 * 8192)
    assert ring(2048, slots=64, leases=2) == Geometry(64, 2, 32 * 2048, 32 * 2048)


def test_a_long_context_has_room_for_usual_prompts_and_for_open_ended_answers() -> None:
    """Two hundred and fifty-six requests without a limit may be open, and a thousand usual ones."""
    assert ring(131072, slots=1024) == Geometry(1024, 1, 1024 * 8192, 256 * 131072)
    assert ring(131072, slots=64) == Geometry(64, 1, 64 * 8192, 64 * 131072)
    assert ring(131072, slots=1024, leases=4) == Geometry(1024, 4, 256 * 8192, 64 * 131072)
    assert heap_bytes(ring(131072, slots=1024)) < 310e6


def test_in_gpu_memory_every_slot_takes_a_padded_copy() -> None:
    """U2."""
    assert ring(512, slots=64, transport="cuda_ipc").prompt_heap * 4 == 64 * COPY_ENGINE_BYTES


@pytest.mark.parametrize("memory", [16 << 20, 64 << 20, 1 << 30])
def test_memory_that_is_given_is_used(memory: int) -> None:
    found = heap_bytes(ring(131072, slots=1024, ring_memory=memory))
    assert memory - 1024 < found <= memory


def test_no_slot_has_more_than_a_context() -> None:
    most = Geometry(16, 1, 16 * 8192, 16 * 8192)
    assert ring(8192, slots=16, ring_memory=1 << 34) == most
