"""Fixtures: a tiny model, a mock backend over a real ring, and a real server on the loopback interface."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mock_backend import MockBackend
from tiny_model import write_model

from nic_frontend.options import FrontendOptions
from nic_frontend.server import Server, listen
from nic_frontend.service import Service

StartBackend = Callable[..., MockBackend]


def wait_until(condition: Callable[[], bool], timeout_s: float = 5.0) -> None:
    """Fails when the condition does not come true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.002)


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def start_backend(model_dir: Path) -> Iterator[StartBackend]:
    """A function that starts a mock backend on a ring of its own; all are stopped at the end."""
    started: list[MockBackend] = []

    def start(**options: Any) -> MockBackend:
        path = Path(f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}")
        started.append(MockBackend(path, model_dir, **options))
        return started[-1].start()

    yield start
    for backend in started:
        backend.stop()


class Frontend:
    """A frontend in a thread, with an HTTP client for it."""

    def __init__(self, backend: MockBackend, model_dir: Path, **options: Any) -> None:
        wanted = {
            "attach_timeout_s": 2.0,
            "drain_timeout_s": 2.0,
            "port": 0,
            "log_level": "warning",
        } | options
        self.options = FrontendOptions(ring=backend.path, model_dir=model_dir, **wanted)
        self.backend = backend
        self._listener = listen(self.options)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.service = Service(self.options)
        ready = threading.Event()
        self.server = Server(self.service, ready.set)
        self._thread = threading.Thread(
            target=self.server.run, kwargs={"sockets": [self._listener]}, daemon=True
        )
        self._thread.start()
        assert ready.wait(10)
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()
        self.service.close()
        self._listener.close()


StartFrontend = Callable[..., Frontend]


@pytest.fixture
def start_frontend(model_dir: Path) -> Iterator[StartFrontend]:
    started: list[Frontend] = []

    def start(backend: MockBackend, **options: Any) -> Frontend:
        started.append(Frontend(backend, model_dir, **options))
        return started[-1]

    yield start
    for frontend in started:
        frontend.stop()


@pytest.fixture
def backend(start_backend: StartBackend) -> MockBackend:
    return start_backend()


@pytest.fixture
def frontend(backend: MockBackend, start_frontend: StartFrontend) -> Frontend:
    return start_frontend(backend)
