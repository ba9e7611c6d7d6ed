"""What dies, and what the others notice of it."""

from __future__ import annotations

import os
import signal
import threading
import time

import httpx
import pytest
from demo_client import ask, chat, items, right
from limits import WAIT_S
from process_state import stop
from serve_process import Serve, ServeProcess, complete
from waiting import wait_until

from ringbuffer import abi

LONG = {"prompt": "Count from 1 to 200.", "max_tokens": 1200, "temperature": 0, "stream": True}
RECLAIM_S = 2.0
STILL_S = 2.5 * abi.LEASE_TIMEOUT_NS / 1e9

pytestmark = pytest.mark.slow


class OpenStream:
    """A stream that has begun. `rest` reads it to its end; raises httpx.TransportError if it breaks off."""

    def __init__(self, client: httpx.Client) -> None:
        request = client.build_request("POST", "/v1/completions", json=LONG)
        self._pieces = client.send(request, stream=True).iter_text()
        next(self._pieces)

    def rest(self) -> str:
        return "".join(self._pieces)


def open_streams(server: ServeProcess, n: int) -> list[OpenStream]:
    return [OpenStream(server.client) for _ in range(n)]


def idle(server: ServeProcess, pages: int) -> bool:
    stats = server.stats()
    return (stats["running"], stats["waiting"], stats["free_pages"]) == (0, 0, pages)


@pytest.mark.alone
def test_a_frontend_killed_in_mid_stream(serve: Serve) -> None:
    server = serve("--threads=1")
    pages = server.idle_stats()["free_pages"]
    streams = open_streams(server, 8)
    wait_until(lambda: server.stats()["running"] == 8, WAIT_S, "all running")
    (frontend,) = server.frontends()
    os.kill(frontend, signal.SIGKILL)
    wait_until(lambda: idle(server, pages), RECLAIM_S, "slots and pages back")
    for stream in streams:
        with pytest.raises(httpx.TransportError):
            stream.rest()
    wait_until(lambda: "serves again" in server.output, WAIT_S, "the new frontend")
    chosen = items("add", 8)
    assert all(right(chosen, ask(server.url, [chat(item, stream=True) for item in chosen])))


def test_a_frontends_death_leaves_the_others_streams_alone(serve: Serve) -> None:
    server = serve("--frontends=2", "--threads=1")
    n = 24  # the kernel deals them out by chance: that one frontend has them all happens once in 2 ** 23
    finished: list[str] = []

    def read(stream: OpenStream) -> None:
        try:
            finished.append(stream.rest())
        except httpx.TransportError:
            finished.append("broken")

    readers = [threading.Thread(target=read, args=(stream,)) for stream in open_streams(server, n)]
    os.kill(server.frontends()[0], signal.SIGKILL)
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(WAIT_S)
    whole = [text for text in finished if text.endswith("data: [DONE]\n\n")]
    assert len(whole) + finished.count("broken") == n
    assert 0 < len(whole) < n
    assert all('"finish_reason":"stop"' in text for text in whole)


@pytest.mark.alone
def test_streams_outlive_a_frontend_that_stands_still(serve: Serve) -> None:
    """R6: under the real scheduler, for longer than the least lease."""
    server = serve("--threads=1")
    streams = open_streams(server, 8)
    (frontend,) = server.frontends()
    stop(frontend)
    time.sleep(STILL_S)
    os.kill(frontend, signal.SIGCONT)
    texts = [stream.rest() for stream in streams]
    assert all(text.endswith("data: [DONE]\n\n") and '"finish_reason":"stop"' in text for text in texts)
    assert server.stats()["leases_reclaimed"] == 0


def test_a_stop_lets_every_stream_finish(serve: Serve) -> None:
    server = serve("--threads=1", f"--drain-timeout={WAIT_S:g}")
    streams = open_streams(server, 4)
    server.process.send_signal(signal.SIGTERM)
    texts = [stream.rest() for stream in streams]
    assert all(text.endswith("data: [DONE]\n\n") and '"finish_reason":"stop"' in text for text in texts)
    assert server.process.wait(WAIT_S) == 0


def test_a_backend_that_hangs_is_told_to_clients_and_serves_on_after(serve: Serve) -> None:
    """The emulation's scheduler is in the backend's process: suspending that stops its heartbeat."""
    server = serve()
    (backend,) = server.backends()
    os.kill(backend, signal.SIGSTOP)
    wait_until(lambda: server.client.get("/health").status_code == 503, WAIT_S, "the heartbeat missed")
    answer = server.client.post("/v1/completions", json={"prompt": "2 + 3 ="})
    assert answer.status_code == 503
    assert "heartbeat" in answer.json()["error"]["message"]
    os.kill(backend, signal.SIGCONT)
    wait_until(lambda: server.client.get("/health").status_code == 200, WAIT_S, "the heartbeat back")
    assert complete(server.client, "2 + 3 =", max_tokens=3).strip() == "5"
