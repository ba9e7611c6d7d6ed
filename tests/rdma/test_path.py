"""HTTP to tokens over a real queue pair: rxe1 to rxe0."""

from __future__ import annotations

from fabric import StartExchange, remote_ring
from harness import StartBackend, StartFrontend
from sse import events, text_of


def expected(n: int) -> str:
    return "".join(chr(0x21 + i) for i in range(n))


def test_a_completion_crosses_the_wire(
    start_backend: StartBackend, start_exchange: StartExchange, start_frontend: StartFrontend
) -> None:
    backend = start_backend(step_s=0.02)
    frontend = start_frontend(backend, ring=remote_ring(start_exchange(backend.path)))
    answer = frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 20}).json()
    assert answer["choices"][0]["text"] == expected(20)
    body = {"prompt": ["x"] * 32, "max_tokens": 12, "stream": True}
    chunks = events(frontend.client.post("/v1/completions", json=body))
    assert [text_of(chunks, i) for i in range(32)] == [expected(12)] * 32
    assert backend.bad_checksums == 0
