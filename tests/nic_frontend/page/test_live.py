"""The state of the machine, as the page asks for it."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from harness import COMPLETION, Frontend, StartBackend, StartFrontend, wait_until
from limits import WAIT_S

from nic_frontend.observe import live
from nic_frontend.observe.live import cpu_seconds, shown_steps
from ringbuffer import abi


def test_the_machine_live(
    start_backend: StartBackend, start_frontend: StartFrontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "REUSE_S", 0.0)
    backend = start_backend(n_leases=2)
    frontends = [start_frontend(backend), start_frontend(backend)]
    for frontend in frontends:
        frontend.client.post("/v1/completions", json={**COMPLETION, "ignore_eos": True})
    wait_until(lambda: frontends[0].client.get("/live").json()["counters"]["generation_tokens"] == 4)
    state = frontends[0].client.get("/live").json()
    assert state["frontends"] == 2
    assert state["phase"] == "SERVING"
    assert sum(state["slots"].values()) == state["limits"]["n_slots"] == 64
    assert sum(state["histograms"]["time_to_first_token_seconds"]["counts"]) == 2
    backend.stalled.set()
    with frontends[0].client.stream("POST", "/v1/completions", json={**COMPLETION, "stream": True}):
        wait_until(lambda: frontends[1].client.get("/live").json()["slots"]["prefill_processing"] == 1)
    backend.stalled.clear()


def test_who_asks_at_the_same_time_is_answered_with_one_reading(
    frontend: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = frontend.client.get("/live").json()
    monkeypatch.setattr(live, "REUSE_S", WAIT_S)
    assert frontend.client.get("/live").json()["time_s"] == first["time_s"]
    monkeypatch.setattr(live, "REUSE_S", 0.01)
    time.sleep(live.REUSE_S)
    assert frontend.client.get("/live").json()["time_s"] > first["time_s"]


def test_steps_are_shown_in_order_without_records_that_make_no_sense() -> None:
    records = np.zeros(abi.SHOWN_STEPS, abi.ShownStep)
    last = 200
    for number in range(last - abi.SHOWN_STEPS + 1, last + 1):
        records[number % abi.SHOWN_STEPS] = (number, number * 100, number * 100 + 90, 7 | 3 << 32)
    records[150 % abi.SHOWN_STEPS] = (150, 20000, 100, 0)  # half of it another's
    records[151 % abi.SHOWN_STEPS] = (20, 1, 2, 0)  # of long ago
    shown = shown_steps(records)
    assert [step["id"] for step in shown] == [n for n in range(137, 201) if n not in (150, 151)]
    assert shown[0] == {"id": 137, "start_ns": 13700, "ns": 90, "prompt_tokens": 7, "decoding": 3}
    assert shown_steps(np.zeros(abi.SHOWN_STEPS, abi.ShownStep)) == []


def test_the_cpu_time_of_a_process_and_of_none(tmp_path: Path) -> None:
    before = cpu_seconds(1)
    assert before is None or before >= 0
    assert cpu_seconds(2**22 + 1) is None
