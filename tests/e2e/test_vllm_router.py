"""The vLLM project's router in front of two servers of ours, which it takes for vLLM's."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_port import free_port
from limits import START_S, WAIT_S
from needs import skip_if_missing, with_need
from serve_process import ROOT, Serve, ServeProcess
from waiting import wait_until

RUN = with_need("vllm-router")
EVENT_S = 2.0  # from a server to the router, on a busy machine
PREFIX = "{0} was a brave fox. One day {0} met an owl. " + "They talked about the weather. " * 30


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    done = subprocess.run([*RUN, "true"], capture_output=True, text=True, timeout=START_S)
    skip_if_missing("vllm-router", done)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def events(server: ServeProcess) -> Iterator[list[str]]:
    """Publishes the server's KV events; the router's flags for them."""
    live, replay = free_port(), free_port()
    command = [
        sys.executable,
        "-m",
        "blink",
        "events",
        "--ring",
        str(server.ring),
        "--topic=",
    ]
    command += [f"--publish=tcp://*:{live}", f"--replay=tcp://*:{replay}"]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            yield [
                f"--kv-event-source={server.url}=tcp://127.0.0.1:{live}",
                f"--kv-event-replay-source={server.url}=tcp://127.0.0.1:{replay}",
            ]
        finally:
            process.terminate()


@contextlib.contextmanager
def router(log: Path, servers: list[ServeProcess], *flags: str) -> Iterator[httpx.Client]:
    port = free_port()
    command = [*RUN, "vllm-router", "--host=127.0.0.1", f"--port={port}", f"--prometheus-port={free_port()}"]
    command += ["--worker-urls", *(server.url for server in servers), *flags]
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S) as client:
                wait_until(lambda: answers(client), START_S, "the router")
                yield client
        finally:
            process.terminate()


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200 and bool(client.get("/v1/models").json()["data"])
    except (httpx.TransportError, ValueError):
        return False


def complete(client: httpx.Client, prompt: str) -> dict[str, Any]:
    body = {"model": "demo", "prompt": prompt, "max_tokens": 4, "temperature": 0}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


@pytest.mark.slow
def test_it_sends_a_prompt_to_the_server_whose_events_told_of_it(serve: Serve, tmp_path: Path) -> None:
    servers = [serve("--kv-events=4096", "--threads=1") for _ in range(2)]
    with contextlib.ExitStack() as running:
        told = [flag for server in servers for flag in running.enter_context(events(server))]
        flags = ("--policy=kv_aware", "--kv-event-block-size=16", "--kv-event-model=demo", *told)
        client = running.enter_context(router(tmp_path / "router.log", servers, *flags))
        fresh = itertools.count()

        def follows(server: ServeProcess) -> bool:
            """Whether the router sends a prompt to the server that has it, which events alone can tell it."""
            prompt = PREFIX.format(f"Number {next(fresh)}")
            complete(server.client, prompt)
            time.sleep(EVENT_S)
            before = server.stats()["prefix_hits"]
            complete(client, f"{prompt} Tell me more.")
            return server.stats()["prefix_hits"] - before > 400

        wait_until(lambda: all(follows(server) for server in 2 * servers), WAIT_S, "routing by events")
