"""What people and load balancers ask a server: how it is set up, what it has to do, which steps it makes."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import httpx
import pytest
from harness import StartBackend, StartFrontend, error_of, wait_until
from mock_backend import MockBackend

from nic_frontend.http.long_json import pieces
from nic_frontend.observe.step_trace import MOST_STEPS, trace_of
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
    backend: MockBackend, start_frontend: StartFrontend
) -> None:
    """Those before it are left out, and those that come are all there, though the ring has 64 at a time."""
    client = start_frontend(backend).client
    for number in range(1, 40):
        publish(backend, number, 5, 0)
    answers: list[httpx.Response] = []
    asking = threading.Thread(target=lambda: answers.append(client.get("/profile?seconds=1.5")))
    asking.start()
    time.sleep(0.4)
    for number in range(40, 240):
        publish(backend, number, 16 if number % 10 == 0 else 0, 8)
        time.sleep(0.002)
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
    backend: MockBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(backend)
    asking = httpx.Client(base_url=frontend.url, timeout=2.0)
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            while asking.get("/profile?seconds=60").status_code == 409:  # one of those below came first
                time.sleep(0.001)
        except httpx.TransportError as error:
            ended.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    get = frontend.client.get
    wait_until(lambda: get("/profile?seconds=0.01").status_code == 409)
    assert error_of(get("/profile?seconds=0.01"), 409)["code"] == "trace_in_progress"
    thread.join()  # after two seconds it leaves
    assert ended
    wait_until(lambda: get("/profile?seconds=0.01").status_code == 200)


def test_a_long_trace_says_what_it_lacks_and_is_written_with_turns_for_others() -> None:
    step = {"start_ns": 0, "ns": 1, "prompt_tokens": 0, "decoding": 1}
    steps = {number: {**step, "id": number} for number in range(1, MOST_STEPS + 1) if number % 7}
    trace = trace_of(steps, [], full=True)
    told = trace["otherData"]
    assert told["full"] is True
    assert told["steps"] + told["missed_steps"] == MOST_STEPS
    longest, length, began = 0.0, 0, time.perf_counter()
    for piece in pieces(trace, json.dumps):
        longest = max(longest, time.perf_counter() - began)
        length += len(piece)
        began = time.perf_counter()
    assert longest < 0.05  # 100 ms is what a turn may take (F10)
    assert length < 32 << 20


@pytest.fixture
def frontend_client(backend: MockBackend, start_frontend: StartFrontend) -> httpx.Client:
    client: httpx.Client = start_frontend(backend).client
    return client
