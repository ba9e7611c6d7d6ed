"""The region: geometry, creation, attachment, and the refusals that protect both sides."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ringbuffer import abi
from ringbuffer.attachment import attach
from ringbuffer.host_memory import available_bytes
from ringbuffer.name import RingError, owner_pid
from ringbuffer.region import (
    MAX_EVENTS,
    Geometry,
    ModelFacts,
    Region,
    create,
    event_record_bytes,
    model_fingerprint,
    ring_path,
)
from ringbuffer.words import name_of

FACTS = ModelFacts(bytes(range(32)), "a model", "cpu", 1000, 512, 8, 64, 16)
GEOMETRY = Geometry(64, 2, 16384, 8192)


@pytest.fixture
def region(tmp_path: Path) -> Iterator[Region]:
    region = create(tmp_path / "ring", GEOMETRY, FACTS)
    yield region
    region.close()


def test_an_attached_region_is_the_same_memory(region: Region) -> None:
    other = attach(region.path)
    assert other.geometry == GEOMETRY
    assert bytes(other.header["model_name"][0]).rstrip(b"\0") == b"a model"
    region.prompts[1, 16383] = 7
    region.set_control(abi.Control.DRAIN)
    assert other.prompts[1, 16383] == 7
    assert int(other.header["control"][0]) == abi.Control.DRAIN
    other.close()


def test_a_dead_schedulers_phase_is_told_with_its_reason(region: Region) -> None:
    region.fail(abi.Fault.DEVICE, 700)
    assert region.phase() is abi.Phase.FAILED
    assert region.fault() == (abi.Fault.DEVICE, 700)


def test_sections_do_not_overlap_and_start_on_pages() -> None:
    at = GEOMETRY.offsets()
    starts = list(at.values())
    assert starts == sorted(starts)
    assert all(offset % 4096 == 0 for offset in starts)
    assert at["outputs"] - at["prompts"] >= 2 * 16384 * 4


def test_leases_share_the_slots() -> None:
    slots = [slot for lease in range(2) for slot in GEOMETRY.lease_slots(lease)]
    assert slots == list(range(64))


@pytest.mark.parametrize(
    "sizes",
    [
        (0, 1, 32, 16), (24, 1, 32, 16), (32, 3, 32, 16), (64, 0, 32, 16), (8192, 1, 32, 16), (16, 1, 0, 16),
        (16, 1, 32, 0), (16, 1, 16, 16), (16, 1, 32, 24), (16, 1, 1 << 31, 16),
    ],
)  # fmt: skip
def test_a_geometry_out_of_range_is_refused(sizes: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Geometry(*sizes)


def test_a_log_of_kv_events_has_room_for_its_records(tmp_path: Path) -> None:
    geometry = Geometry(16, 1, 512, 512, 5, event_record_bytes(16))
    region = create(tmp_path / "ring", geometry, FACTS)
    assert geometry.kv_event_bytes % 64 == 0
    assert geometry.kv_event_bytes >= abi.KvEvent.itemsize + 16 * 4
    region.kv_event_records[4, -1] = 7
    other = attach(region.path)
    assert other.geometry == geometry
    assert other.kv_event_records[4, -1] == 7
    other.close()
    region.close()
    with pytest.raises(ValueError, match="must be between 0 and"):
        Geometry(16, 1, 512, 512, MAX_EVENTS + 1, 64)


def test_another_layout_is_refused(region: Region) -> None:
    region.header["layout_hash"][0] ^= np.uint64(1)
    with pytest.raises(RingError, match="same version of blink on both sides"):
        attach(region.path)


def test_what_is_not_a_ring_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="start `blink backend` first"):
        attach(tmp_path / "absent")
    (tmp_path / "short").write_bytes(b"x")
    (tmp_path / "short").chmod(0o600)
    with pytest.raises(RingError, match="not a ring"):
        attach(tmp_path / "short")
    (tmp_path / "zeros").write_bytes(bytes(8192))
    (tmp_path / "zeros").chmod(0o600)
    with pytest.raises(RingError, match="not a ring"):
        attach(tmp_path / "zeros")


def test_a_truncated_ring_is_refused(region: Region) -> None:
    os.truncate(region.path, 8192)
    with pytest.raises(RingError, match="truncated"):
        attach(region.path)


def test_a_running_backends_ring_is_not_taken_over(region: Region) -> None:
    """R9."""
    message = rf"belongs to a running backend \(process {os.getpid()}\)"
    with pytest.raises(RingError, match=message):
        create(region.path, GEOMETRY, FACTS)
    attach(region.path).close()


def test_a_dead_backends_ring_is_replaced(region: Region, tmp_path: Path) -> None:
    """Whatever process has its number now: this one, for instance."""
    (tmp_path / "dead").write_bytes(region.header.tobytes())
    (tmp_path / "dead").chmod(0o600)
    create(tmp_path / "dead", GEOMETRY, FACTS).close()
    assert not (tmp_path / "dead").exists()


def test_of_two_backends_that_start_at_once_one_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9. And the other's end leaves its name alone."""
    reserve, rings = os.posix_fallocate, []

    def reserve_slowly(*arguments: int) -> None:
        monkeypatch.setattr(os, "posix_fallocate", reserve)
        rings.append(create(tmp_path / "ring", GEOMETRY, FACTS))
        reserve(*arguments)

    monkeypatch.setattr(os, "posix_fallocate", reserve_slowly)
    with pytest.raises(RingError, match="belongs to a running backend"):
        create(tmp_path / "ring", GEOMETRY, FACTS)
    attach(tmp_path / "ring").close()
    rings[0].close()
    assert list(tmp_path.iterdir()) == []


def test_a_ring_ends_without_anybody_elses_name(region: Region) -> None:
    region.path.unlink()
    other = create(region.path, GEOMETRY, FACTS)
    region.close()
    attach(region.path).close()
    other.close()


def test_available_memory_is_that_of_this_machine() -> None:
    assert 1 << 20 < available_bytes() < 1 << 50


def test_a_ring_larger_than_the_memory_that_is_left_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel would end other processes to make room."""
    monkeypatch.setattr("ringbuffer.region.available_bytes", lambda: 4096)
    monkeypatch.setattr(os, "posix_fallocate", lambda *arguments: pytest.fail("it was begun"))
    with pytest.raises(RingError, match=r"cannot reserve .* \(Cannot allocate memory\): lower --ring-memory"):
        create(tmp_path / "ring", GEOMETRY, FACTS)
    assert list(tmp_path.iterdir()) == []


def test_a_ring_that_does_not_fit_is_refused() -> None:
    path = ring_path(f"test-too-large-{os.getpid()}")
    with pytest.raises(RingError, match="lower --ring-memory"):
        create(path, Geometry(4096, 32, 1 << 30, 1 << 30), FACTS)
    assert not path.exists()


def test_a_phase_that_there_is_not_is_told_as_it_is(region: Region) -> None:
    region.header["phase"][0] = 99
    assert region.phase() == 99
    assert name_of(abi.Phase, region.phase()) == "unknown (99)"
    region.header["phase"][0] = abi.Phase.FAILED
    assert region.phase() is abi.Phase.FAILED
    assert name_of(abi.Phase, region.phase()) == "FAILED"


def test_the_fingerprint_covers_config_and_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    first = model_fingerprint(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{ }")
    assert model_fingerprint(tmp_path) != first
    assert len(first) == 32
    (tmp_path / "config.json").unlink()
    with pytest.raises(FileNotFoundError):
        model_fingerprint(tmp_path)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_a_ring_that_others_may_open_is_refused(region: Region, mode: int) -> None:
    region.path.chmod(mode)
    with pytest.raises(RingError, match="open to other users"):
        attach(region.path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_ring_of_another_user_is_refused(region: Region) -> None:
    """Who makes the name first would read all prompts."""
    os.chown(region.path, 65534, -1)
    with pytest.raises(RingError, match="of user 65534, and this process of user 0"):
        attach(region.path)
    with pytest.raises(RingError, match="of user 65534"):
        create(region.path, GEOMETRY, FACTS)


def test_a_name_that_is_no_ring_holds_nobody_up(tmp_path: Path) -> None:
    """A FIFO would be waited for, a link leads elsewhere."""
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "link").symlink_to("/etc/passwd")
    for use in (attach, owner_pid, lambda path: create(path, GEOMETRY, FACTS)):
        with pytest.raises(RingError, match="no regular file"):
            use(tmp_path / "fifo")
        with pytest.raises(RingError, match="symbolic link"):
            use(tmp_path / "link")


def test_what_backend_and_scheduler_own_cannot_be_written_by_a_frontend(region: Region) -> None:
    other = attach(region.path)
    owned = ("header", "lease_acks", "progress", "outputs")
    for name in owned:
        with pytest.raises(ValueError, match="read-only"):
            getattr(other, name).view(np.uint8)[...] = 1
    for name in ("leases", "requests", "descriptors", "prompts"):
        getattr(other, name).view(np.uint8)[...] = 1
        assert getattr(region, name).view(np.uint8).all()
    offsets = region.geometry.offsets()
    for name in owned:  # native code has no flags: the kernel refuses
        child = os.fork()
        if child == 0:
            faulthandler.disable()
            ctypes.memset(other.address + offsets[name], 1, 1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), name
        assert os.WTERMSIG(status) == signal.SIGSEGV
    other.close()


def test_nothing_is_left_of_a_process_that_was_killed_while_it_made_a_ring(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os.posix_fallocate = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        create(tmp_path / "ring", GEOMETRY, FACTS)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert list(tmp_path.iterdir()) == []
