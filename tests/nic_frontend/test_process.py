"""A frontend as a process of its own: signals and suspension."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from frontend_process import Process
from harness import StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend
from process_state import children, stop
from scripted_answers import count_up
from sse import parse

from ringbuffer import abi
from ringbuffer.words import pair_word


def refuses(url: str) -> bool:
    """Whether nobody else is let in."""
    try:
        httpx.get(f"{url}/health", timeout=WAIT_S)
    except httpx.ConnectError:
        return True
    return False


@pytest.mark.slow
def test_sigterm_lets_streams_finish(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    backend = start_backend(step_s=0.01, device="cpu")
    processes.append(frontend := Process(backend, model_dir, port, drain_s=WAIT_S / 2))
    frontend.wait_ready()
    answers: list[httpx.Response] = []
    body = {"prompt": "x", "max_tokens": 100, "stream": True}
    client = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{frontend.url}/v1/completions", json=body, timeout=WAIT_S))
    )
    client.start()
    wait_until(lambda: bool(backend.accepted))
    backend.stalled.set()
    frontend.process.send_signal(signal.SIGTERM)
    wait_until(lambda: refuses(frontend.url))
    backend.stalled.clear()
    client.join()
    assert len(parse(answers[0].text)) == 100
    log = frontend.end()
    assert frontend.process.returncode == 0, log
    assert int(backend.region.leases["word"][0]) == 0


@pytest.mark.slow
def test_sigterm_to_its_whole_group_is_told_of_no_grammar(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    """As `timeout` sends it: the processes that compile grammars serve on until the frontend ends."""
    backend = start_backend(step_s=0.01, device="cpu")
    processes.append(frontend := Process(backend, model_dir, port, drain_s=WAIT_S / 2))
    frontend.wait_ready()
    url, body = f"{frontend.url}/v1/completions", {"prompt": "x", "max_tokens": 100, "stream": True}
    chosen = {"prompt": "x", "max_tokens": 1, "structured_outputs": {"choice": ["a"]}}
    assert httpx.post(url, json=chosen, timeout=WAIT_S).status_code == 200
    backend.stalled.set()
    with httpx.stream("POST", url, json=body, timeout=WAIT_S) as response:
        helpers = children(frontend.process.pid)
        assert helpers
        for pid in [*helpers, frontend.process.pid]:
            os.kill(pid, signal.SIGTERM)
        wait_until(lambda: refuses(frontend.url))
        backend.stalled.clear()
        assert len(parse(response.read().decode())) == 100
    log = frontend.end()
    assert frontend.process.returncode == 0, log
    assert "given up" not in log


@pytest.mark.alone
@pytest.mark.slow
def test_sigterm_ends_streams_that_take_too_long(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    backend = start_backend(step_s=0.05, device="cpu")
    processes.append(frontend := Process(backend, model_dir, port, drain_s=0.5))
    frontend.wait_ready()
    body = {"prompt": "x", "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{frontend.url}/v1/completions", json=body, timeout=WAIT_S) as response:
        text = iter(response.iter_text())
        received = next(text)
        frontend.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        received += "".join(text)
    assert time.monotonic() - began < 5
    assert "shutting down" in parse(received)[-1]["error"]["message"]
    frontend.end()
    wait_until(lambda: backend.open_rows() == 0)


@pytest.mark.slow
def test_a_killed_frontend_leaves_its_lease_to_the_next(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    backend = start_backend(step_s=0.01, device="cpu")
    processes.append(first := Process(backend, model_dir, port))
    first.wait_ready()
    body = {"prompt": "x", "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{first.url}/v1/completions", json=body, timeout=WAIT_S):
        wait_until(lambda: backend.open_rows() == 1)
        first.process.kill()
    first.end()
    processes.append(second := Process(backend, model_dir, port))
    second.wait_ready()
    assert backend.open_rows() == 0
    assert httpx.post(f"{second.url}/v1/completions", json={"prompt": "x"}, timeout=WAIT_S).status_code == 200


@pytest.mark.slow
def test_more_connections_than_the_soft_limit_of_files(
    backend: MockBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    processes.append(frontend := Process(backend, model_dir, port, limit="ulimit -Sn 60"))
    frontend.wait_ready()
    with contextlib.ExitStack() as stack:
        for _ in range(80):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert httpx.get(f"{frontend.url}/health", timeout=WAIT_S).status_code == 200
    frontend.process.terminate()
    assert "ulimit" not in frontend.end()


@pytest.mark.slow
def test_too_few_files_are_told(
    backend: MockBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    processes.append(frontend := Process(backend, model_dir, port, limit="ulimit -n 163"))
    frontend.wait_ready()
    frontend.process.terminate()
    told = frontend.end()
    assert "may have 63 connections, too few for 64 slots" in told
    assert "the limit of files (ulimit -Hn) to 164" in told


def tokens_of(body: bytes) -> list[int]:
    """The numbers of the tokens of `count_up` that a stream's events show, in their order."""
    chunks = parse(body.decode())
    return [ord(chunk["choices"][0]["text"]) - ord("!") for chunk in chunks if chunk["choices"][0]["text"]]


@pytest.mark.parametrize("still_s", [1.5, pytest.param(5.0, marks=pytest.mark.slow)])
def test_streams_outlive_a_frontend_that_stands_still(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process], still_s: float
) -> None:
    """Also those of which nothing had come yet, and those that ended meanwhile. Each token comes once."""
    backend = start_backend(step_s=0.02, device="cpu")
    processes.append(frontend := Process(backend, model_dir, port))
    frontend.wait_ready()
    n = min(90, int(still_s / 0.02))  # ends while it stands still, or soon after
    body = {"prompt": "x", "stream": True}
    bodies: dict[int, bytes] = {}
    few = 6  # tokens that the first have when all wait

    def pausing(prompt: list[int]) -> Iterator[int]:
        for position, token in enumerate(count_up(prompt)):
            if position == few:
                backend.stalled.set()
            yield token

    def read(index: int, n_tokens: int) -> None:
        asked = {**body, "max_tokens": n_tokens}
        answer = httpx.post(f"{frontend.url}/v1/completions", json=asked, timeout=WAIT_S)
        bodies[index] = answer.content

    def ask(indices: range, n_tokens: int) -> list[threading.Thread]:
        readers = [threading.Thread(target=read, args=(index, n_tokens)) for index in indices]
        for reader in readers:
            reader.start()
        return readers

    backend.script = pausing
    backend.stalled.set()
    readers = ask(range(8), n)
    wait_until(lambda: len(backend.accepted) == 8)
    backend.stalled.clear()
    wait_until(lambda: all(row.count > few for row in backend.accepted))
    backend.script = count_up
    readers += ask(range(8, 12), 20)
    wait_until(lambda: len(backend.accepted) == 12)
    stop(frontend.process.pid)
    backend.stalled.clear()
    time.sleep(still_s)
    wait_until(lambda: sum(row.state is abi.State.DECODE_COMPLETED for row in backend.accepted) >= 4)
    os.kill(frontend.process.pid, signal.SIGCONT)
    for reader in readers:
        reader.join(WAIT_S)
    expected = {index: list(range(n if index < 8 else 20)) for index in range(12)}
    assert {index: tokens_of(content) for index, content in bodies.items()} == expected
    assert int(backend.region.leases["word"][0]) & 0xFFFFFFFF == 1  # the first epoch still
    wait_until(lambda: backend.open_rows() == 0)


@pytest.mark.slow
def test_suspended_for_longer_than_the_lease(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    backend = start_backend(device="cpu")
    processes.append(frontend := Process(backend, model_dir, port))
    frontend.wait_ready()
    stop(frontend.process.pid)
    longest_s, backend.longest_lease_s = backend.longest_lease_s, 1.0  # of one that is stopped alone
    reclaimed = pair_word(1, abi.LeaseState.RECLAIMED)
    wait_until(lambda: int(backend.region.lease_acks["word"][0]) == reclaimed, what="the lease reclaimed")
    backend.longest_lease_s = longest_s
    os.kill(frontend.process.pid, signal.SIGCONT)
    wait_until(lambda: int(backend.region.leases["word"][0]) & 0xFFFFFFFF == 2)
    frontend.wait_ready()
    assert (
        httpx.post(f"{frontend.url}/v1/completions", json={"prompt": "x"}, timeout=WAIT_S).status_code == 200
    )


@pytest.mark.slow
def test_a_frontend_whose_backend_was_started_again_ends_and_says_so(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    """F11: it would answer 503 for ever, since nobody serves what it has mapped."""
    first = start_backend()
    processes.append(frontend := Process(first, model_dir, port))
    frontend.wait_ready()
    first.stop()
    wait_until(lambda: httpx.get(f"{frontend.url}/health", timeout=WAIT_S).status_code == 503)
    time.sleep(0.5)
    assert frontend.process.poll() is None, "there is nothing else to attach to"
    second = start_backend(first.path)
    log = frontend.end()
    assert frontend.process.returncode == 1
    assert "another backend has made the ring anew: start this frontend again" in log
    assert "Traceback" not in log
    processes.append(after := Process(second, model_dir, port))
    after.wait_ready()


def test_an_outdated_ring_that_still_serves_is_kept(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """F11: its requests go on, whoever has taken its name."""
    backend = start_backend()
    frontend = start_frontend(backend)
    backend.path.unlink()
    start_backend(backend.path)
    time.sleep(0.3)
    assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 200
    assert frontend.service.given_up is None
