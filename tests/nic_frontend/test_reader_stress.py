"""The token reader under the thread sanitizer (reader_stress.cpp), and over rings with faults."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import StartBackend, StartFrontend
from limits import PROGRAM_S, WAIT_S
from sse import events, text_of

from ringbuffer import abi

NATIVE = sorted((Path(__file__).resolve().parents[2] / "nic_frontend/native").glob("*.cpp"))


def test_no_race_and_no_wrong_token(build_program: Callable[..., Path]) -> None:
    # -Wno-tsan: the sanitizer does not model fences. What they order here are atomics, which never race.
    flags = ["-O1", "-fsanitize=thread", "-Wno-tsan"]
    program = build_program("reader_stress", ["tests/nic_frontend/reader_stress.cpp", *NATIVE], *flags)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    run = subprocess.run([program], capture_output=True, text=True, timeout=PROGRAM_S, env=environment)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "scenario",
    [
        "cap",
        "urgent",
        "stopped",
        "last_submission",
        "rotation",
        "burst",
        "reads",
        "steps",
        "period",
        "waiting",
        "silence",
        "cached",
        "backlog",
    ],
)
def test_each_cycle(build_program: Callable[..., Path], scenario: str) -> None:
    program = build_program("reader-cycles", ["tests/nic_frontend/reader_cycles.cpp", *NATIVE], "-O1")
    run = subprocess.run([program, scenario], capture_output=True, text=True, timeout=PROGRAM_S)
    assert run.returncode == 0, run.stderr


def test_an_event_loop_that_was_faster_than_its_wakeup_sleeps_again(
    build_program: Callable[..., Path],
) -> None:
    program = build_program("reader-wakeup", ["tests/nic_frontend/reader_wakeup.cpp", *NATIVE], "-O1")
    run = subprocess.run([program], capture_output=True, text=True, timeout=PROGRAM_S)
    assert run.returncode == 0, run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("records", "torn", "jitter", "tokens_per_step"),
    [
        ("arena", False, False, 1),
        ("both", True, False, 1),
        ("both", False, True, 1),
        ("both", True, True, 3),
        ("arena", True, True, 9),
    ],
)
def test_faulty_rings_never_deliver_a_wrong_token(
    start_backend: StartBackend,
    start_frontend: StartFrontend,
    records: str,
    torn: bool,
    jitter: bool,
    tokens_per_step: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A busy machine may keep the backend from writing what it has announced.
    monkeypatch.setattr(abi, "TORN_PAYLOAD_TIMEOUT_NS", int(1e9 * WAIT_S))
    backend = start_backend()
    backend.records, backend.torn, backend.jitter = records, torn, jitter
    backend.tokens_per_step = tokens_per_step
    frontend = start_frontend(backend)
    expected = "".join(chr(0x21 + i) for i in range(90))
    body = {"prompt": ["x"] * 16, "max_tokens": 90}
    for _ in range(2):  # the second time each slot may hold the records of the first
        answer = frontend.client.post("/v1/completions", json=body).json()
        assert [choice["text"] for choice in answer["choices"]] == [expected] * 16
        chunks = events(frontend.client.post("/v1/completions", json={**body, "stream": True}))
        assert [text_of(chunks, i) for i in range(16)] == [expected] * 16
    if torn:
        assert frontend.service._reader.health().bad_records > 0
