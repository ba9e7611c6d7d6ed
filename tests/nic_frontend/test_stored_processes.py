"""Frontends that are processes of their own and share a ring and a store of responses."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_port import free_port
from frontend_process import Process
from harness import StartBackend, wait_until
from limits import WAIT_S
from scripted_answers import say
from templates import HERMES, write_model_with
from tiny_model import build_tokenizer


def in_background(url: str) -> str:
    body = {"input": "Weather?", "background": True}
    answer = httpx.post(f"{url}/v1/responses", json=body, timeout=WAIT_S)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def found(url: str, id: str) -> Any:
    return httpx.get(f"{url}/v1/responses/{id}", timeout=WAIT_S).json()


@pytest.mark.slow
def test_one_dies_and_another_tells_of_it(
    start_backend: StartBackend, tmp_path: Path, processes: list[Process]
) -> None:
    model = write_model_with(tmp_path / "model", HERMES)
    backend = start_backend(n_leases=2, max_context=4096, model=model, device="cpu")
    backend.script = say(build_tokenizer().encode("It rains.", add_special_tokens=False).ids)
    more = ("--store-responses", str(tmp_path / "responses"))

    def start() -> Process:
        processes.append(Process(backend, model, free_port(), more=more))  # else another might answer
        processes[-1].wait_ready()
        return processes[-1]

    first = start()
    done = in_background(first.url)
    wait_until(lambda: found(first.url, done)["status"] == "completed")
    backend.stalled.set()
    open_one = in_background(first.url)
    second = start()
    first.process.send_signal(signal.SIGKILL)
    first.end()
    lost = found(second.url, open_one)
    assert (lost["status"], lost["error"]["code"]) == ("failed", "server_error")
    assert found(second.url, done)["output"][0]["content"][0]["text"] == "It rains."
    backend.stalled.clear()
    again = in_background(second.url)
    wait_until(lambda: found(second.url, again)["status"] == "completed")
    second.process.terminate()
    second.end()
    third = start()
    assert found(third.url, again)["status"] == "completed", "the file outlives those who write to it"
