"""blink bench transport: a short run over the real link and a real echo, and what it tells of transports that
are not here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limits import PROGRAM_S, WAIT_S

from blink.bench.echo_peer import EchoPeer, ring_geometry
from blink.bench.transport import names, spread
from gpu_backend.host_library import host_library

ROOT = Path(__file__).resolve().parents[2]


def bench(*flags: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "blink", "bench", "transport", *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    path = tmp_path_factory.mktemp("bench") / "transport.json"
    done = bench(
        "--device=cpu", "--transports=shm", "--requests=300", "--prompt-tokens=1,700", "--streams=40",
        "--tokens=150", "--step-us=2000", f"--json={path}",
    )  # fmt: skip
    return json.loads(path.read_text()), done.stdout


@pytest.mark.slow
def test_latencies_are_those_of_whole_requests(measured: tuple[dict[str, Any], str]) -> None:
    latency = measured[0]["transports"]["shm"]["latency"]
    assert [(entry["prompt_tokens"], entry["requests"]) for entry in latency] == [(1, 300), (700, 300)]
    for entry in latency:
        for what in ("posted", "answer", "word"):
            assert 0 < entry[what]["p50"] <= entry[what]["p99"] <= entry[what]["max"] < 5e6
        assert entry["posted"]["p50"] < entry["answer"]["p50"]
        assert entry["cores"] > 0


@pytest.mark.slow
def test_every_token_is_read_at_the_echos_pace(measured: tuple[dict[str, Any], str]) -> None:
    result = measured[0]["transports"]["shm"]
    drained = result["drain"]
    assert drained["tokens"] == 40 * 150
    assert drained["seconds"] >= 149 * 0.002
    assert drained["tokens_per_second"] == pytest.approx(6000 / drained["seconds"])
    assert drained["tokens_per_core_second"] == pytest.approx(
        drained["tokens_per_second"] / drained["cores"], rel=0.01
    )
    assert result["torn_payloads"] == 0
    assert result["echo"] == "cpu"


@pytest.mark.slow
def test_the_table_and_the_machine_are_told(measured: tuple[dict[str, Any], str]) -> None:
    result, told = measured
    assert result["machine"]["cores"] == os.cpu_count()
    assert result["options"]["streams"] == 40
    assert "prompt of 700: until its token, us" in told
    assert "tokens per core second" in told


@pytest.mark.slow
@pytest.mark.alone
def test_nothing_is_left_behind(measured: tuple[dict[str, Any], str]) -> None:
    assert not list(Path("/dev/shm").glob("blink-bench-*-shm"))


@pytest.mark.slow
def test_what_cannot_run_here_is_left_out_and_told() -> None:
    told = bench("--requests=20", "--streams=1", "--tokens=10", "--prompt-tokens=4").stdout
    assert "shm" in told.splitlines()[0]
    assert "cuda_ipc" not in told.splitlines()[0]
    assert "cuda_ipc: no GPU to serve from: " in told
    assert "verbs: needs --rdma-host ADDRESS" in told


@pytest.mark.slow
def test_what_was_asked_for_and_cannot_run_is_an_error() -> None:
    said = bench("--transports=cuda_ipc", status=1).stderr
    assert said.startswith("blink bench: error: cuda_ipc: no GPU to serve from: ")
    said = bench("--transports=cuda_ipc", "--device=cpu", status=1).stderr
    assert "the transport cuda_ipc needs a GPU" in said
    said = bench("--transports=pigeon", status=2).stderr
    assert "'pigeon' is not a transport; there are shm, cuda_ipc, verbs" in said


def test_the_ring_of_an_echo_that_was_killed_is_removed() -> None:
    with EchoPeer(f"bench-{os.getpid()}-killed", "shm", "cpu", ring_geometry(1, 1, 1), 1000) as peer:
        peer.process.kill()
        peer.process.wait()
        assert peer.path.exists()
    assert not peer.path.exists()


def test_names_and_spread() -> None:
    import numpy as np

    assert names("cuda_ipc,shm") == ("cuda_ipc", "shm")
    assert spread(np.arange(101.0)) == {"p50": 50.0, "p99": 99.0, "max": 100.0}


def test_the_echo_refuses_a_payload_that_is_not_of_its_word(tmp_path: Path) -> None:
    """R2: what `payloads read again` counts. A word whose descriptor is another request's is not answered."""
    from gpu_backend.schedulers.echo import HostEcho
    from nic_frontend.ring.lease import Lease
    from nic_frontend.transport.shm import SharedMemory
    from ringbuffer.abi import Command, Control, State
    from ringbuffer.region import Geometry, ModelFacts, create
    from ringbuffer.words import Status, request_word

    host_library()
    region = create(
        tmp_path / "ring", Geometry(16, 1, 64, 16), ModelFacts(bytes(32), "m", "cpu", 9, 64, 1, 1, 16)
    )
    echo = HostEcho(region.address, 16, 0)
    transport = SharedMemory(tmp_path / "ring")
    lease = Lease(transport)
    lease.acquire(WAIT_S)
    region.descriptors["prompt_tokens"][2] = 1
    region.descriptors["max_tokens"][2] = region.descriptors["output_room"][2] = 3
    region.requests[2] = request_word(1, Command.SUBMIT, lease.epoch)
    while region.stats()["torn_payloads"] < 100:
        assert Status.unpack(int(region.progress["status"][2])).state == State.EMPTY
    region.descriptors["epoch"][2], region.descriptors["sequence"][2] = lease.epoch, 1  # the payload arrives
    while (status := Status.unpack(int(region.progress["status"][2]))).state != State.DECODE_COMPLETED:
        pass
    assert (status.sequence, status.count) == (1, 3)
    region.set_control(Control.STOP)
    assert echo.wait(WAIT_S)
    echo.close()
    transport.close()
    region.close()
