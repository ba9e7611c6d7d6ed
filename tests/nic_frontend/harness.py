"""A frontend in a thread, and what the tests share."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from limits import START_S, WAIT_S
from mock_backend import MockBackend
from waiting import wait_until as wait_until  # the tests of this folder import it with the rest

from nic_frontend.options import FrontendOptions
from nic_frontend.server import Server, listening
from nic_frontend.service import Service

# Of a client that leaves before its answer comes, when the server has read its request.
IMPATIENT = httpx.Timeout(WAIT_S, read=1.5)
COMPLETION: dict[str, Any] = {"prompt": "hello", "max_tokens": 2}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}


def error_of(response: Any, status: int) -> dict[str, Any]:
    """The error object; checks that it has exactly OpenAI's fields."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error: dict[str, Any] = response.json()["error"]
    assert list(response.json()) == ["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert error["param"] is None or isinstance(error["param"], str)
    assert error["code"] is None or isinstance(error["code"], str)
    return error


class Frontend:
    """A frontend in a thread, with an HTTP client for it."""

    def __init__(self, backend: MockBackend, model_dir: Path, **options: Any) -> None:
        wanted = {
            "attach_timeout_s": WAIT_S,
            "drain_timeout_s": 2.0,
            "port": 0,
            "log_level": "warning",
            "ring": backend.path,
        } | options
        self.options = FrontendOptions(model_dir=model_dir, **wanted)
        self.backend = backend
        self._owned = contextlib.ExitStack()
        listener = self._owned.enter_context(listening(self.options))
        self.port = 0 if self.options.uds else listener.getsockname()[1]
        self.url = "http://localhost" if self.options.uds else f"http://127.0.0.1:{self.port}"
        self.service = Service(self.options)
        ready = threading.Event()
        self.server = Server(self.service, ready.set)
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        assert ready.wait(START_S)
        self.client = self._new_client()

    def _new_client(self) -> httpx.Client:
        # Without TLS nothing is verified, and each client would read all of the system's certificates.
        path = self.options.uds
        transport = httpx.HTTPTransport(uds=str(path)) if path else None
        return httpx.Client(base_url=self.url, timeout=WAIT_S, verify=False, transport=transport)

    def disconnect(self) -> None:
        """Ends the client's connections."""
        self.client.close()
        self.client = self._new_client()

    def stop(self) -> None:
        self.client.close()
        self.server.should_exit = True
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
        self.service.close()
        self._owned.close()


StartBackend = Callable[..., MockBackend]
StartFrontend = Callable[..., Frontend]
Speak = Callable[..., Frontend]  # a template, what is answered, options
