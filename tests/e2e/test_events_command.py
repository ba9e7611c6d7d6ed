"""`blink events` beside a server, as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from demo_client import ask, chat, items
from limits import PROGRAM_S, WAIT_S
from serve_process import ROOT, Serve
from waiting import wait_until


@pytest.mark.slow
def test_what_a_server_caches_is_printed(serve: Serve) -> None:
    server = serve("--kv-events=64")
    item = items("lookup_long", 1)[0]
    assert ask(server.url, [chat(item)])[0].status == 200
    command = [sys.executable, "-m", "blink", "events", "--ring", str(server.ring)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            first, stored = (json.loads(process.stdout.readline()) for _ in range(2))
            assert first == {"type": "AllBlocksCleared"}
            assert stored["type"] == "BlockStored"
            assert stored["parent_block_hash"] is None
            assert stored["cache_salt"] is None
            assert len(stored["token_ids"]) == 16
            follower = json.loads(process.stdout.readline())
            assert follower["parent_block_hash"] == stored["block_hash"]
        finally:
            process.terminate()


@pytest.mark.slow
def test_it_ends_with_the_backend_and_says_why(serve: Serve) -> None:
    server = serve("--kv-events=64")
    command = [sys.executable, "-m", "blink", "events", "--ring", str(server.ring)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert "AllBlocksCleared" in process.stdout.readline()
            server.stop()
            wait_until(lambda: process.poll() is not None, WAIT_S, "the end")
            assert process.returncode == 1
            assert process.stderr is not None
            assert "blink events: error: the scheduler" in process.stderr.read()
        finally:
            process.terminate()


@pytest.mark.slow
def test_a_server_that_tells_nothing_is_refused(serve: Serve) -> None:
    server = serve()
    command = [sys.executable, "-m", "blink", "events", "--ring", str(server.ring)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 1
    assert "start it with --kv-events N" in done.stderr


@pytest.mark.slow
def test_what_a_server_caches_is_published_as_vllm_publishes(serve: Serve, tmp_path: Path) -> None:
    server = serve("--kv-events=64")
    endpoint, replay = f"ipc://{tmp_path}/events", f"ipc://{tmp_path}/replay"
    command = [sys.executable, "-m", "blink", "events", "--ring", str(server.ring), "--topic=kv@here@demo"]
    publisher = subprocess.Popen([*command, "--publish", endpoint, "--replay", replay], cwd=ROOT)
    context = zmq.Context()
    try:
        item = items("lookup_long", 1)[0]
        assert ask(server.url, [chat(item)])[0].status == 200
        asker = context.socket(zmq.DEALER)
        asker.connect(replay)

        def told() -> list[Any]:
            """All events so far."""
            asker.send_multipart((b"", (0).to_bytes(8, "big")))
            found: list[Any] = []
            while asker.poll(int(WAIT_S * 1000)):
                _, _, payload = asker.recv_multipart()
                if not payload:
                    return found
                found += msgspec.msgpack.decode(payload)[1]
            raise AssertionError("nobody answers")

        wait_until(lambda: any(event["type"] == "BlockStored" for event in told()), WAIT_S, "a block")
        stored = next(event for event in told() if event["type"] == "BlockStored")
        assert stored["parent_block_hash"] is None
        assert stored["block_size"] == 16
        assert len(stored["token_ids"]) == 16 * len(stored["block_hashes"])
    finally:
        publisher.terminate()
        publisher.wait()
        context.destroy(linger=0)
