"""The transport cuda_ipc over a driver whose GPU memory is a file (fake_driver.c): what is put on the
streams, in which order it takes effect, and what happens when the GPU is gone.
"""

from __future__ import annotations

import ctypes
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import StartBackend, StartFrontend, wait_until

from nic_frontend.library import library
from nic_frontend.transport import cuda_ipc
from nic_frontend.transport.base import TransportError
from nic_frontend.transport.cuda_ipc import CudaIpc
from ringbuffer import abi, device_ring
from ringbuffer.name import RingName
from ringbuffer.region import Geometry, ModelFacts, Region, create

COPY = abi.COPY_ENGINE_BYTES
ROOM = COPY // 4 + 32  # tokens that a slot's prompt has of the heap here: more than a padded copy
FACTS = ModelFacts(b"\0" * 32, "m", "test", 1 << 30, 8192, 8, 10, 16)
SECOND_GPU = b"\2" * 16  # of the fake's two, the one that can write 64-bit values


@pytest.fixture(scope="session")
def driver_path(build_program: Callable[..., Path]) -> Path:
    flags = ["-shared", "-fPIC", "-O1", "-Werror"]
    return build_program("libcuda.so.1", ["tests/nic_frontend/fake_driver.c"], *flags)


@pytest.fixture
def driver(driver_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ctypes.CDLL]:
    """The fake driver, in place of libcuda. No test may misuse it."""
    monkeypatch.setattr(cuda_ipc, "DRIVER", str(driver_path))
    fake = ctypes.CDLL(str(driver_path))
    fake.fake_log.restype = ctypes.c_char_p
    fake.fake_clear()
    yield fake
    fake.fake_end()
    assert ctypes.c_uint.in_dll(fake, "fake_misuses").value == 0


def log(driver: ctypes.CDLL) -> list[tuple[str, int, int]]:
    """What was put on the streams to the device: copies (offset, bytes), batches (last offset, count)."""
    lines = [line.split() for line in driver.fake_log().decode().splitlines()]
    return [(kind, int(offset), int(n)) for kind, offset, n in lines]


def expose(region: Region) -> RingName:
    """The file of a ring in GPU memory, whose memory is this region."""
    path = region.path.with_name(f"{region.path.name}-gpu")
    handle = str(region.path).encode().ljust(64, b"\0")
    return device_ring.write(path, region.header.copy(), SECOND_GPU, handle)


Ring = tuple[Region, CudaIpc]
MakeRing = Callable[..., Ring]


@pytest.fixture
def make_ring(driver: ctypes.CDLL) -> Iterator[MakeRing]:
    made: list[tuple[Ring, RingName]] = []

    def make(n_slots: int = 16, prompt_heap: int = 16 * ROOM, n_leases: int = 1) -> Ring:
        path = Path(f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}")
        region = create(path, Geometry(n_slots, n_leases, prompt_heap, 256), FACTS)
        name = expose(region)
        ring = region, CudaIpc(name.path)
        made.append((ring, name))
        driver.fake_clear()
        return ring

    yield make
    for (region, transport), name in made:
        transport.close()
        name.close()
        region.close()


@pytest.fixture
def ring(make_ring: MakeRing) -> Ring:
    return make_ring()


WORDS = abi.Descriptor.itemsize // 4


def submit(ring: Ring, slot: int, prompt: np.ndarray, sequence: int, room: int = ROOM) -> None:
    """As the token reader does: prompt, descriptor, word. Every word of the descriptor is the sequence."""
    region, transport = ring
    header = region.header[0]
    descriptor = np.full(WORDS, sequence, np.uint32)
    at = int(header["prompts_offset"]) + slot * room * 4
    transport.write(at, prompt.tobytes(), room * 4)
    transport.write(int(header["descriptors_offset"]) + slot * WORDS * 4, descriptor.tobytes())
    transport.publish(int(header["requests_offset"]) + slot * 8, sequence)


def prompt_of(region: Region, slot: int, room: int = ROOM) -> np.ndarray:
    """The slot's range of the only lease's prompts."""
    return region.prompts[0, slot * room : (slot + 1) * room]


def arrived(region: Region, slot: int, sequence: int) -> None:
    wait_until(lambda: int(region.requests[slot]) == sequence)


def tokens(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 32, n, dtype=np.uint32)


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
    thread.join(10)
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
    began = time.monotonic()
    for slot in range(16):
        submit(ring, slot, tokens(500, slot), 1)
    assert time.monotonic() - began < 0.5
    assert not ring[0].requests.any()
    driver.fake_hold(0)
    for slot in range(16):
        arrived(ring[0], slot, 1)


@pytest.mark.alone
def test_a_gpu_that_hangs_is_given_up_within_its_bound(ring: Ring, driver: ctypes.CDLL) -> None:
    """U4."""
    driver.fake_hang(1)
    began = time.monotonic()
    with pytest.raises(TransportError, match="the GPU that holds the ring failed or hangs"):
        ring[1].read(0, 64)
    assert 0.9 < time.monotonic() - began < 3
    began = time.monotonic()
    with pytest.raises(TransportError):
        ring[1].read(0, 64)
    submit(ring, 0, tokens(900, 0), 1)
    ring[1].close()
    assert time.monotonic() - began < 0.2  # it does not try again
    driver.fake_hang(0)
    time.sleep(0.05)
    assert not ring[0].requests.any()


@pytest.mark.alone
def test_a_full_queue_is_a_bounded_wait(ring: Ring, driver: ctypes.CDLL) -> None:
    driver.fake_hang(1)
    began = time.monotonic()
    for i in range(300):
        submit(ring, i % 16, tokens(300, i), 1)  # more than the staging holds
    assert time.monotonic() - began < 3
    assert library().blink_link_read(ring[1].link, 0, ctypes.create_string_buffer(8), 8) != 0


def test_a_failed_gpu_is_told_once(
    ring: Ring, driver: ctypes.CDLL, capfd: pytest.CaptureFixture[str]
) -> None:
    driver.fake_break(1)
    for _ in range(3):
        with pytest.raises(TransportError):
            ring[1].read(0, 64)
    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert told.startswith("blink frontend: the link to the ring is down: ")
    assert "unspecified launch failure (CUresult 719)" in told


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


def test_what_cannot_be_opened_says_why(ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    region, _ = ring
    with pytest.raises(TransportError, match=r"no ring in GPU memory at .*start `blink backend --transport"):
        CudaIpc(tmp_path / "none")
    with pytest.raises(TransportError, match="no ring in GPU memory"):
        CudaIpc(region.path)  # in host memory
    header, handle = region.header.copy(), str(region.path).encode().ljust(64, b"\0")
    path = tmp_path / "ring"
    for gpu, memory, message in (
        (b"\7" * 16, handle, "the ring's GPU is not visible to this process: see CUDA_VISIBLE_DEVICES"),
        (b"\1" * 16, handle, "the GPU has no 64-bit stream memory operations"),
        (SECOND_GPU, b"/gone".ljust(64, b"\0"), "has its backend ended"),
    ):
        name = device_ring.write(path, header, gpu, memory)
        with pytest.raises(TransportError, match=message):
            CudaIpc(path)
        name.close()
    name = device_ring.write(path, header, SECOND_GPU, handle)
    monkeypatch.setattr(cuda_ipc, "DRIVER", "libcuda-of-nobody.so.1")
    with pytest.raises(TransportError, match=r"no NVIDIA driver: libcuda-of-nobody"):
        CudaIpc(path)
    name.close()
    header["layout_hash"] += np.uint64(1)
    name = device_ring.write(path, header, SECOND_GPU, handle)
    with pytest.raises(TransportError, match="run the same version of blink on both sides"):
        CudaIpc(path)
    name.close()


def test_a_frontend_serves_over_it_and_says_503_when_the_gpu_is_gone(
    driver: ctypes.CDLL, start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(prompt_heap=64 * COPY // 4)
    name = expose(backend.region)
    in_host_memory, backend.path = backend.path, name.path
    frontend = start_frontend(backend)
    body = {"prompt": "one two three", "max_tokens": 40, "temperature": 0}
    over_gpu = frontend.client.post("/v1/completions", json=body).json()["choices"]
    backend.path = in_host_memory
    assert backend.bad_checksums == 0
    assert len(backend.accepted) == 1
    assert over_gpu[0]["finish_reason"] == "length"
    assert any(kind == "batch" for kind, _, _ in log(driver))

    driver.fake_break(1)
    wait_until(lambda: frontend.client.get("/health").status_code == 503)
    refused = frontend.client.post("/v1/completions", json=body)
    assert refused.status_code == 503
    name.close()
