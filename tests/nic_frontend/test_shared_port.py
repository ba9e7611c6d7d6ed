"""Frontends, each a process of its own, that listen on one port and share a ring's leases."""

from __future__ import annotations

import threading
from pathlib import Path

import httpx
import pytest
from frontend_process import Process
from harness import StartBackend, wait_until
from limits import WAIT_S
from mock_backend import MockBackend


@pytest.mark.slow
def test_two_processes_share_a_port(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process]
) -> None:
    backend = start_backend(n_leases=2, device="cpu")
    processes.extend(Process(backend, model_dir, port) for _ in range(2))
    for one in processes:
        one.wait_ready()
    wait_until(lambda: all(int(word) for word in backend.region.leases["word"][:2]))
    wait_until(lambda: ask_until_both(processes[0].url, backend))


def ask_until_both(url: str, backend: MockBackend) -> bool:
    body = {"prompt": "x", "max_tokens": 1}
    assert httpx.post(f"{url}/v1/completions", json=body, timeout=WAIT_S).status_code == 200
    return {slot // 32 for slot, _, _ in backend.commands} == {0, 1}


class Crowd:
    """Threads that ask without a pause until `end`: half over one connection each, half over new ones."""

    def __init__(self, url: str, n: int = 6) -> None:
        self.answered = 0
        self.lost: list[str] = []
        self._over = threading.Event()
        self._url = f"{url}/v1/completions"
        self._threads = [threading.Thread(target=self._ask, args=(bool(i % 2),)) for i in range(n)]
        for thread in self._threads:
            thread.start()

    def _ask(self, kept: bool) -> None:
        client = httpx.Client(timeout=WAIT_S, limits=httpx.Limits(max_keepalive_connections=int(kept)))
        with client:
            while not self._over.is_set():
                try:
                    answer = client.post(self._url, json={"prompt": "x", "max_tokens": 2})
                    assert answer.json()["usage"]["completion_tokens"] == 2
                    self.answered += 1
                except Exception as error:
                    self.lost.append(repr(error))

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_S)


@pytest.mark.slow
@pytest.mark.parametrize("turns", [1, 6])
def test_one_of_two_frontends_ends_without_a_loss(
    start_backend: StartBackend, model_dir: Path, port: int, processes: list[Process], turns: int
) -> None:
    """A rolling restart: whoever asks while one of them ends gets an answer."""
    backend = start_backend(n_leases=2, device="cpu")
    processes.extend(Process(backend, model_dir, port) for _ in range(2))
    processes[0].wait_ready()
    wait_until(lambda: all(int(word) for word in backend.region.leases["word"][:2]))
    wait_until(lambda: ask_until_both(processes[0].url, backend))
    crowd = Crowd(processes[0].url)
    for turn in range(turns):
        wait_until(lambda: ask_until_both(processes[0].url, backend))
        leaving = processes[turn]
        leaving.process.terminate()
        leaving.end()
        assert leaving.process.returncode == 0
        if turn + 1 < turns:
            backend.commands.clear()
            processes.append(Process(backend, model_dir, port))
            wait_until(lambda: ask_until_both(processes[0].url, backend))
    wait_until(lambda: crowd.answered > 20)
    crowd.end()
    assert crowd.lost == []


@pytest.mark.slow
def test_a_frontend_without_a_free_lease_says_so(
    model_dir: Path, port: int, backend: MockBackend, processes: list[Process]
) -> None:
    processes.append(first := Process(backend, model_dir, port))
    first.wait_ready()
    processes.append(second := Process(backend, model_dir, port))
    assert "all 1 lease(s) of the ring are held" in second.end()
    assert second.process.returncode == 1
