"""The transport cuda_ipc over a driver whose GPU memory is a file (fake_driver.c): what is put on the
streams, and in which order it takes effect.
"""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
from gpu_ring import COPY, ROOM, WORDS, MakeRing, Ring, arrived, expose, log, prompt_of, submit, tokens
from limits import WAIT_S
from own_time import own_s

from nic_frontend.transport.cuda_ipc import CudaIpc


def test_a_short_request_is_one_batch_of_words(ring: Ring, driver: ctypes.CDLL) -> None:
    region, _ = ring
    submit(ring, 3, tokens(5, 1), 77)
    arrived(region, 3, 77)
    words = (
        2 + 1 + WORDS // 2 + 1
    )  # four tokens as two words, one as half a word, the descriptor, the request word
    assert log(driver) == [("batch", int(region.header["requests_offset"][0]) + 3 * 8, words)]
    assert prompt_of(region, 3)[:6].tolist() == [*tokens(5, 1).tolist(), 0]
    assert region.descriptors[3].tobytes() == np.full(WORDS, 77, np.uint32).tobytes()


@pytest.mark.parametrize("slot", [0, 7, 15])
@pytest.mark.parametrize("n", [65, 3001, COPY // 4 - 1])
def test_a_longer_prompt_is_one_copy_padded_within_its_range(
    ring: Ring, driver: ctypes.CDLL, slot: int, n: int
) -> None:
    """U2: the padding reaches no byte of another request, nor of another section."""
    region, _ = ring
    region.prompts[:] = 0xABCDABCD
    region.outputs[:] = 5
    submit(ring, slot, tokens(n, 2), 8)
    arrived(region, slot, 8)
    at = int(region.header["prompts_offset"][0]) + slot * ROOM * 4
    assert [entry for entry in log(driver) if entry[0] == "copy"] == [("copy", at, COPY)]
    assert prompt_of(region, slot)[:n].tolist() == tokens(n, 2).tolist()
    prompt_of(region, slot)[: COPY // 4] = 0xABCDABCD
    assert (region.prompts == 0xABCDABCD).all()
    assert (region.outputs == 5).all()


def test_without_room_for_padding_a_prompt_is_words(make_ring: MakeRing, driver: ctypes.CDLL) -> None:
    room = 2047  # odd: every second range begins in the middle of a word
    region, transport = make_ring(prompt_heap=16 * 2048)
    for slot in range(16):
        submit((region, transport), slot, tokens(room, slot), slot + 1, room)
    for slot in range(16):
        arrived(region, slot, slot + 1)
        assert prompt_of(region, slot, room).tolist() == tokens(room, slot).tolist()
    assert all(kind == "batch" and n <= 255 for kind, _, n in log(driver))


def test_a_prompt_longer_than_the_staging_goes_in_pieces(make_ring: MakeRing, driver: ctypes.CDLL) -> None:
    n = (4 << 20) // 4 + 64
    region, transport = make_ring(prompt_heap=2 * n)
    submit((region, transport), 1, tokens(n, 3), 9, n)
    arrived(region, 1, 9)
    assert np.array_equal(prompt_of(region, 1, n), tokens(n, 3))
    copies = [n_bytes for kind, _, n_bytes in log(driver) if kind == "copy"]
    assert sum(copies) == 4 * n
    assert min(copies) >= COPY


def test_payload_is_there_before_its_word(ring: Ring) -> None:
    """R2, from two threads, with a driver that copies late."""
    region, _ = ring
    wrong: list[str] = []
    ended = threading.Event()

    def scheduler() -> None:
        seen = [0] * 16
        while not ended.is_set() or any(s != 50 for s in seen[:8]):
            for slot in range(8):
                word = int(region.requests[slot])
                if word == seen[slot]:
                    continue
                descriptor = region.descriptors[slot].tobytes()
                prompt = prompt_of(region, slot)[0].item()
                seen[slot] = word
                if prompt < word or np.frombuffer(descriptor, np.uint32).min() < word:
                    wrong.append(f"slot {slot}: word {word}, prompt {prompt}")

    thread = threading.Thread(target=scheduler)
    thread.start()

    def frontend(slots: range) -> None:
        for sequence in range(1, 51):
            for slot in slots:
                submit(ring, slot, np.full(1 + 97 * ((slot * sequence) % 31), sequence, np.uint32), sequence)

    frontends = [threading.Thread(target=frontend, args=(slots,)) for slots in (range(4), range(4, 8))]
    for each in frontends:
        each.start()
    for each in frontends:
        each.join()
    for slot in range(8):
        arrived(region, slot, 50)
    ended.set()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert wrong == []


def test_staging_is_not_used_again_before_it_was_read(ring: Ring) -> None:
    """More padded copies than the staging buffer holds; each must carry its own prompt."""
    region, _ = ring
    for i in range(400):
        submit(ring, i % 16, tokens(300, i), i + 1)
    for i in range(384, 400):
        arrived(region, i % 16, i + 1)
        assert prompt_of(region, i % 16)[:300].tolist() == tokens(300, i).tolist()


def test_reads_see_the_ring(ring: Ring) -> None:
    region, transport = ring
    region.outputs[0] = np.arange(256, dtype=np.uint64)
    region.progress["status"] = np.arange(100, 116)
    at = int(region.header["outputs_offset"][0])
    assert transport.read(at + 8, 1024) == region.outputs.tobytes()[8:1032]
    assert transport.read(0, region.n_bytes) == bytes(region.mapping[:])  # more than the buffer holds


@pytest.mark.alone
def test_nothing_waits_for_a_submission(ring: Ring, driver: ctypes.CDLL) -> None:
    """U3: what is submitted is queued; a held stream does not hold the caller."""
    driver.fake_hold(1)
    began = own_s()
    for slot in range(16):
        submit(ring, slot, tokens(500, slot), 1)
    assert own_s() - began < 0.5
    assert not ring[0].requests.any()
    driver.fake_hold(0)
    for slot in range(16):
        arrived(ring[0], slot, 1)


def test_closing_releases_the_memory(make_ring: MakeRing, driver: ctypes.CDLL) -> None:
    before = driver.fake_open()
    _, transport = make_ring()
    assert driver.fake_open() == before + 1
    transport.close()
    transport.close()
    assert driver.fake_open() == before


def test_leases_have_one_holder(make_ring: MakeRing) -> None:
    """F1."""
    region, first = make_ring(n_slots=32, n_leases=2)
    path = region.path.with_name(f"{region.path.name}-gpu")
    second = CudaIpc(path)
    assert (first.claim_lease(2), second.claim_lease(2)) == (0, 1)
    path.unlink()
    name = expose(region)  # writes the file anew: the locks of another are not its own
    third = CudaIpc(path)
    assert third.claim_lease(2) == 0
    second.close()
    third.close()
    name.close()
