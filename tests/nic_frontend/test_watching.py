"""What people and load balancers ask a server: how it is set up, what it has to do, which steps it makes."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from harness import StartBackend, StartFrontend, error_of, wait_until
from known_work import LONGEST_S, least_s
from limits import WAIT_S
from mock_backend import MockBackend
from numpy.typing import NDArray

from nic_frontend.http.long_json import pieces
from nic_frontend.observe import step_trace
from nic_frontend.observe.live import shown_steps
from nic_frontend.observe.server_info import server_info
from nic_frontend.observe.step_trace import MOST_STEPS, trace_of
from nic_frontend.options import FrontendOptions
from ringbuffer import abi


def test_what_is_served_is_told_without_secrets(
    start_backend: StartBackend, start_frontend: StartFrontend, model_dir: Path
) -> None:
    frontend = start_frontend(
        start_backend(), served_model_name="own", model_aliases=("other",), api_key="very secret",
        seal_key=b"very secret seal",
    )  # fmt: skip
    error_of(frontend.client.get("/server_info"), 401)
    answer = frontend.client.get("/server_info", headers={"authorization": "Bearer very secret"})
    told = answer.json()
    assert (told["model"], told["model_aliases"]) == ("own", ["other"])
    assert told["limits"]["max_context"] == 512
    assert told["frontend"]["model_dir"] == str(model_dir)
    assert told["frontend"]["max_choices"] == 128
    assert told["frontend"]["api_key"] is True
    assert told["frontend"]["seal_key"] is True
    assert "very secret" not in answer.text


def test_server_info_leaves_the_password_of_a_url_out(backend: MockBackend, model_dir: Path) -> None:
    endpoint = "https://me:hidden@collector:4318/v1/traces?of=a@b"
    options = FrontendOptions(ring=backend.path, model_dir=model_dir, otlp_traces_endpoint=endpoint)
    told = server_info(options, ("own",), backend.region.header.reshape(-1)[0])["frontend"]
    assert told["otlp_traces_endpoint"] == "https://collector:4318/v1/traces?of=a@b"


def test_load_is_what_the_scheduler_has(backend: MockBackend, start_frontend: StartFrontend) -> None:
    client = start_frontend(backend).client
    stats = backend.region.header["stats"]
    stats["running"], stats["waiting"], stats["free_pages"], stats["cached_pages"] = 3, 2, 70, 20
    found = client.get("/load").json()
    assert found == {"server_load": 5, "running": 3, "waiting": 2, "free_pages": 70, "cached_pages": 20}


def publish(backend: MockBackend, number: int, prompt_tokens: int, decoding: int) -> None:
    """A step of 100 us, 10 us after the one before it."""
    steps = backend.region.header["steps"][0]
    start = 1_000_000 + 110_000 * number
    steps[number % abi.SHOWN_STEPS] = (number, start, start + 100_000, prompt_tokens | decoding << 32)


def test_the_steps_of_a_window_are_a_chrome_trace(
    backend: MockBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before it are left out, and those that come are all there, though the ring has 64 at a time."""
    client = start_frontend(backend).client
    now, looks = [0.0], list[int]()

    def shown(records: NDArray[np.void]) -> list[dict[str, int]]:
        looks.append(len(looks))
        return shown_steps(records)

    def seen() -> None:
        """Returns when all that is published has been looked at."""
        before = len(looks)
        wait_until(lambda: len(looks) >= before + 2)  # the first may have read the ring before

    monkeypatch.setattr(step_trace, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(step_trace, "shown_steps", shown)
    for number in range(1, 40):
        publish(backend, number, 5, 0)
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(client.get("/profile?seconds=1.5")))
    asking.start()
    wait_until(lambda: looks)
    for number in range(40, 240):
        publish(backend, number, 16 if number % 10 == 0 else 0, 8)
        if number % (abi.SHOWN_STEPS // 2) == 0:
            seen()
    seen()
    now[0] = 1.5
    asking.join()
    trace = answers[0].json()
    assert trace["otherData"]["missed_steps"] == 0
    steps = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [event["args"]["step"] for event in steps] == [*range(40, 240)]
    first, second = steps[:2]
    assert first["name"] == "prompts + decode"
    assert first["args"] == {"step": 40, "prompt_tokens": 16, "decoding": 8}
    assert second["name"] == "decode"
    assert (first["dur"], second["args"]["gap_us"]) == (100.0, 10.0)
    assert second["ts"] - first["ts"] == pytest.approx(110.0)
    assert {event["name"] for event in trace["traceEvents"] if event["ph"] == "C"} == {"requests", "KV pages"}
    assert {event["ph"] for event in trace["traceEvents"]} == {"M", "X", "C"}


@pytest.mark.parametrize("seconds", ["0", "-1", "61", "nan", "inf", "x", ""])
def test_no_such_window(frontend_client: httpx.Client, seconds: str) -> None:
    assert error_of(frontend_client.get(f"/profile?seconds={seconds}"), 400)["param"] == "seconds"


def test_one_trace_at_a_time_and_none_for_a_client_that_left(
    backend: MockBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    frontend = start_frontend(backend)
    began = threading.Event()
    take = step_trace.StepTrace._take

    async def noted(trace: step_trace.StepTrace, seconds: float) -> dict[str, Any]:
        began.set()
        return await take(trace, seconds)

    monkeypatch.setattr(step_trace.StepTrace, "_take", noted)
    get = frontend.client.get
    with socket.create_connection(("127.0.0.1", frontend.port), timeout=WAIT_S) as leaves:
        leaves.sendall(b"GET /profile?seconds=60 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert began.wait(WAIT_S)
        assert error_of(get("/profile?seconds=0.01"), 409)["code"] == "trace_in_progress"
    wait_until(lambda: get("/profile?seconds=0.01").status_code == 200, WAIT_S / 4, "the trace given up")


def test_a_long_trace_says_what_it_lacks_and_is_written_with_turns_for_others() -> None:
    step = {"start_ns": 0, "ns": 1, "prompt_tokens": 0, "decoding": 1}
    steps = {number: {**step, "id": number} for number in range(1, MOST_STEPS + 1) if number % 7}
    trace = trace_of(steps, [], full=True)
    told = trace["otherData"]
    assert told["full"] is True
    assert told["steps"] + told["missed_steps"] == MOST_STEPS
    assert sum(map(len, pieces(trace, json.dumps))) < 32 << 20

    def longest_s() -> float:
        longest, began = 0.0, time.thread_time()
        for _ in pieces(trace, json.dumps):
            longest = max(longest, time.thread_time() - began)
            began = time.thread_time()
        return longest

    assert least_s(longest_s, LONGEST_S / 2) < LONGEST_S / 2


@pytest.fixture
def frontend_client(backend: MockBackend, start_frontend: StartFrontend) -> httpx.Client:
    client: httpx.Client = start_frontend(backend).client
    return client
