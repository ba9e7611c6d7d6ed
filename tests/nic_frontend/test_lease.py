"""The lease: asked for, kept, lost, renewed, given back; and a backend that hangs or ends."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness import Frontend, StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from process_state import children
from test_validation import error_of
from tiny_model import write_model

from nic_frontend import service
from nic_frontend.options import FrontendOptions
from nic_frontend.ring.host_segment import segment_path
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.service import Service
from nic_frontend.transport.base import TransportError
from nic_frontend.transport.shm import SharedMemory
from ringbuffer import abi
from ringbuffer.abi import Fault, Phase


def in_thread(frontend: Frontend, body: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    """Posts a completion in the background; the list gets the response."""
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(frontend.client.post("/v1/completions", json=body))
    )
    thread.start()
    return thread, answers


def test_each_frontend_gets_a_lease_of_its_own(
    start_backend: StartBackend, start_frontend: StartFrontend, model_dir: Path
) -> None:
    backend = start_backend(n_leases=2)
    first, second = start_frontend(backend), start_frontend(backend)
    assert {first.service.lease.index, second.service.lease.index} == {0, 1}
    for frontend in (first, second):
        assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 200
    used = {slot // 32 for slot, _, _ in backend.commands}
    assert used == {0, 1}
    with pytest.raises(TransportError, match=r"all 2 lease\(s\) of the ring are held"):
        Service(FrontendOptions(ring=backend.path, model_dir=model_dir))


def test_a_lease_is_free_again_when_its_holder_is_gone(backend: MockBackend) -> None:
    """F1."""
    for expected_epoch in (1, 2, 3):
        transport = SharedMemory(backend.path)
        lease = Lease(transport)
        lease.acquire(WAIT_S)
        assert lease.epoch == expected_epoch
        transport.close()  # as the kernel does when the process dies; the lease word is left as it was


def test_no_grant_says_why(backend: MockBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    backend.refuse_leases = True
    beats = backend.region.header["heartbeat"]

    def look_again(seconds: float) -> None:  # until its thread, too, has had a core
        before = int(beats[0])
        time.sleep(seconds)
        wait_until(lambda: backend.frozen.is_set() or int(beats[0]) != before)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=look_again)
    monkeypatch.setattr("nic_frontend.ring.lease.time", clock)
    transport = SharedMemory(backend.path)
    with pytest.raises(
        TransportError, match=r"did not grant lease 0.*phase is SERVING, its heartbeat changes"
    ):
        Lease(transport).acquire(0.1)
    backend.frozen.set()
    with pytest.raises(TransportError, match="its heartbeat stands still"):
        Lease(transport).acquire(0.1)
    transport.close()


def test_no_ring_says_what_to_do(model_dir: Path) -> None:
    options = FrontendOptions(ring=Path("/dev/shm/blink-none"), model_dir=model_dir, attach_timeout_s=0.1)
    with pytest.raises(TransportError, match="start `blink backend` first"):
        Service(options)


def test_a_backend_that_never_serves(start_backend: StartBackend, model_dir: Path) -> None:
    backend = start_backend()
    backend.set_phase(Phase.STARTING)
    options = FrontendOptions(ring=backend.path, model_dir=model_dir, attach_timeout_s=0.1)
    with pytest.raises(TransportError, match="in phase STARTING, not SERVING"):
        Service(options)


def test_a_backend_that_has_failed_says_why(start_backend: StartBackend, model_dir: Path) -> None:
    backend = start_backend()
    backend.region.header["fault"][0], backend.region.header["fault_detail"][0] = Fault.LAUNCH, 719
    backend.set_phase(Phase.FAILED)
    options = FrontendOptions(ring=backend.path, model_dir=model_dir, attach_timeout_s=0.1)
    with pytest.raises(TransportError, match="launching a step was refused with CUDA error 719"):
        Service(options)


@pytest.mark.parametrize("field", ["layout_hash", "abi_version"])
def test_another_layout_is_refused(backend: MockBackend, model_dir: Path, field: str) -> None:
    backend.region.header[field][0] += 1
    options = FrontendOptions(ring=backend.path, model_dir=model_dir, attach_timeout_s=0.1)
    with pytest.raises(TransportError, match="run the same version of blink on both sides"):
        Service(options)


def test_a_frontend_that_cannot_be_put_together_leaves_nothing(
    backend: MockBackend, model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However late it fails, the lease is free at once, and reader and template process have ended."""
    readers: list[TokenReader] = []

    class Kept(TokenReader):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            readers.append(self)

    def fails(limit_s: float) -> None:
        raise OSError("no watchdog")

    monkeypatch.setattr(service, "TokenReader", Kept)
    monkeypatch.setattr(service, "Watchdog", fails)
    before = {*children(os.getpid())}
    with pytest.raises(OSError, match="no watchdog"):
        Service(FrontendOptions(ring=backend.path, model_dir=model_dir))
    assert readers[0]._reader is None
    assert backend.region.leases["word"][0] == 0
    assert not segment_path(backend.path).exists()
    assert {*children(os.getpid())} <= before  # one that another test has left may end meanwhile


def test_another_model_is_refused(backend: MockBackend, tmp_path: Path) -> None:
    other = write_model(tmp_path / "other", name="other")
    with pytest.raises(TransportError, match="another model"):
        Service(FrontendOptions(ring=backend.path, model_dir=other))


@pytest.mark.alone
def test_beats_keep_the_lease_for_longer_than_its_timeout(frontend: Frontend, backend: MockBackend) -> None:
    word = backend.region.leases["word"]

    def beats_often() -> bool:
        """False where one of the threads had no core for a while."""
        seen = set()
        end = time.monotonic() + 1.3 * abi.LEASE_TIMEOUT_NS / 1e9
        while time.monotonic() < end:
            seen.add(int(word[0]) >> 32)
            time.sleep(0.005)
        return len(seen) > 1.3 * abi.LEASE_TIMEOUT_NS / abi.LEASE_BEAT_NS

    wait_until(beats_often)
    assert frontend.client.get("/health").status_code == 200
    assert frontend.service.lease.epoch == 1


def test_a_lost_lease_fails_open_requests_and_is_renewed(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 400})
    with frontend.client.stream(
        "POST", "/v1/completions", json={"prompt": "y", "max_tokens": 400, "stream": True}
    ) as response:
        lines = response.iter_lines()
        next(lines)
        backend.refuse_leases = True
        backend.reclaim(0)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2][6:])["error"]["type"] == "service_unavailable"
    thread.join()
    assert error_of(answers[0], 503)["type"] == "service_unavailable"
    response = frontend.client.get("/health")
    assert "lease" in error_of(response, 503)["message"]
    assert "retry-after" in response.headers
    error_of(frontend.client.post("/v1/completions", json={"prompt": "x"}), 503)

    backend.refuse_leases = False
    wait_until(lambda: frontend.client.get("/health").status_code == 200)
    assert frontend.service.lease.epoch > 1
    answer = frontend.client.post("/v1/completions", json={"prompt": ["x"] * 64, "max_tokens": 2}).json()
    assert answer["usage"]["completion_tokens"] == 128  # every slot works again


@pytest.mark.alone
@pytest.mark.slow
def test_a_heartbeat_that_stands_still(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    backend = start_backend(step_s=0.01)
    frontend = start_frontend(backend)
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 400})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    began = time.monotonic()
    backend.frozen.set()
    thread.join()
    assert 1.5 < time.monotonic() - began < 10.0
    assert re.search(r"heartbeat has stood still for \d", error_of(answers[0], 503)["message"])
    error_of(frontend.client.get("/health"), 503)
    error_of(frontend.client.post("/v1/completions", json={"prompt": "x"}), 503)
    backend.frozen.clear()  # it was only slow: everything is as before
    wait_until(lambda: frontend.client.get("/health").status_code == 200)
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
    assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 200


@pytest.mark.parametrize("phase", [Phase.STOPPED, Phase.FAILED])
def test_a_backend_that_ends(
    start_backend: StartBackend, start_frontend: StartFrontend, phase: Phase
) -> None:
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 400})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    backend.region.header["fault"][0], backend.region.header["fault_detail"][0] = Fault.STEP, 9
    backend.set_phase(phase)
    thread.join()
    message = error_of(answers[0], 503)["message"]
    assert message == (
        "the scheduler failed: step 9 did not complete in time (fault STEP)"
        if phase is Phase.FAILED
        else "the scheduler is in phase STOPPED, not SERVING"
    )


def test_an_unknown_phase_refuses_what_is_new_and_ends_nothing(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """Whoever has mapped the ring can write the word. The scheduler lives: its heartbeat changes."""
    backend = start_backend()
    frontend = start_frontend(backend)
    backend.stalled.set()
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 60})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    backend.region.header["phase"][0] = 99
    wait_until(lambda: frontend.client.get("/health").status_code == 503)
    assert "in phase unknown (99)" in error_of(frontend.client.get("/health"), 503)["message"]
    backend.stalled.clear()
    thread.join()
    assert answers[0].json()["usage"]["completion_tokens"] == 60
    backend.set_phase(Phase.SERVING)
    wait_until(lambda: frontend.client.get("/health").status_code == 200)


def test_a_draining_backend_finishes_what_is_open(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend()
    frontend = start_frontend(backend)
    backend.stalled.set()
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 60})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    backend.set_phase(Phase.DRAINING)
    wait_until(lambda: frontend.client.get("/health").status_code == 503)
    backend.stalled.clear()
    thread.join()
    assert answers[0].json()["usage"]["completion_tokens"] == 60


def test_a_clean_end_gives_everything_back(
    start_backend: StartBackend, start_frontend: StartFrontend, model_dir: Path
) -> None:
    backend = start_backend(step_s=0.05)
    frontend = Frontend(backend, model_dir, drain_timeout_s=0.2)
    thread, answers = in_thread(frontend, {"prompt": "x", "max_tokens": 400})
    wait_until(lambda: frontend.service.tracker.n_open == 1)
    frontend.server.should_exit = True
    thread.join()
    error_of(answers[0], 503)
    frontend.stop()
    assert np.all(backend.region.leases["word"] == 0)
    wait_until(lambda: backend.open_rows() == 0)
    again = start_frontend(backend)
    assert again.client.post("/v1/completions", json={"prompt": "x"}).status_code == 200


def test_every_transport_of_an_attachment_that_fails_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over RDMA, one that is left has the lease that the next one wants."""
    left: list[object] = []

    class Breaks:
        def __init__(self) -> None:
            left.append(self)

        def read(self, offset: int, n_bytes: int) -> bytes:
            raise TransportError("the link is down")

        def close(self) -> None:
            left.remove(self)

    monkeypatch.setattr(service, "open_transport", lambda ring, model_dir: Breaks())
    monkeypatch.setattr(service, "ATTACH_POLL_S", 0.01)
    with pytest.raises(TransportError, match="the link is down"):
        service.attach(tmp_path / "ring", tmp_path, 0.05)
    assert left == []
