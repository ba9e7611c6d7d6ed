"""The line of throughput that a frontend logs while it serves."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from harness import StartBackend, StartFrontend, wait_until
from limits import WAIT_S

from nic_frontend.abi import Health
from nic_frontend.observe import reporter
from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.metrics import Figures, Metrics
from nic_frontend.observe.throughput import Throughput
from ringbuffer import abi
from ringbuffer.messages import LOG_FIELDS


def figures(prompt: int, cached: int, output: int, complete: int) -> Figures:
    metrics = Metrics()
    metrics.prompt_tokens, metrics.prompt_tokens_cached, metrics.generation_tokens = prompt, cached, output
    metrics.finished["stop"] = complete
    metrics._ttft.observe(0.02, complete)
    metrics._itl.observe(0.004, output)
    return metrics.figures(0, Health())


def seen(*of_leases: Figures, running: int = 0) -> Seen:
    header = np.zeros(1, abi.Header)[0]
    header["total_pages"] = 100
    header["stats"]["free_pages"] = 59
    header["stats"]["running"] = running
    return Seen(dict(enumerate(of_leases)), header)


def test_a_line_is_about_what_came_since_the_last_one_at_all_frontends() -> None:
    throughput = Throughput()
    assert throughput.line(seen(figures(100, 0, 0, 0), figures(0, 0, 500, 0)), 100.0) is None
    told = throughput.line(seen(figures(1100, 750, 0, 10), figures(0, 0, 8500, 0), running=7), 110.0)
    assert told is not None
    assert told[0] == (
        "800 output tokens/s, 100 prompt tokens/s (75% cached), 1 requests/s, 7 running, 0 waiting, "
        "KV cache 41%, TTFT 20 ms, ITL 4 ms"
    )
    assert told[1]["output_tokens_per_s"] == 800


def test_an_idle_server_says_so_once() -> None:
    throughput = Throughput()
    throughput.line(seen(figures(0, 0, 0, 0)), 0.0)
    assert throughput.line(seen(figures(0, 0, 0, 0)), 10.0) is None
    assert throughput.line(seen(figures(5, 0, 5, 1)), 20.0) is not None
    idle = throughput.line(seen(figures(5, 0, 5, 1)), 30.0)
    assert idle is not None
    assert idle[0] == "idle"
    assert throughput.line(seen(figures(5, 0, 5, 1)), 40.0) is None


def test_a_frontend_that_was_started_again_takes_nothing_away() -> None:
    throughput = Throughput()
    throughput.line(seen(figures(0, 0, 1000, 0), figures(0, 0, 1000, 0)), 0.0)
    told = throughput.line(seen(figures(0, 0, 10, 0), figures(0, 0, 1100, 0)), 10.0)
    assert told is not None
    assert told[1]["output_tokens_per_s"] == 10


def test_one_frontend_of_several_speaks_for_all(
    start_backend: StartBackend,
    start_frontend: StartFrontend,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(reporter, "LINE_S", 0.5)
    monkeypatch.setattr(reporter, "PUBLISH_S", 0.05)
    caplog.set_level(logging.INFO, "nic_frontend.observe.reporter")
    backend = start_backend(n_leases=2)
    first, second = start_frontend(backend), start_frontend(backend)
    # What came before its first look is in no line.
    wait_until(lambda: 0 in first.service._reporter._throughput._before)
    for frontend in (first, second):
        body = {"prompt": [5], "max_tokens": 40, "ignore_eos": True}
        assert frontend.client.post("/v1/completions", json=body).status_code == 200

    def said() -> float:
        told = [record for record in caplog.records if record.name == reporter.__name__]
        lines = [getattr(record, LOG_FIELDS) for record in told]
        return sum(line["output_tokens_per_s"] * line["seconds"] for line in lines)

    wait_until(lambda: said() >= 79)
    assert said() == pytest.approx(80)


def test_a_frontend_that_was_out_of_sight_is_not_counted_twice() -> None:
    throughput = Throughput()
    throughput.line(seen(figures(0, 0, 0, 0), figures(0, 0, 1000, 0)), 0.0)
    throughput.line(seen(figures(0, 0, 10, 0)), 10.0)
    told = throughput.line(seen(figures(0, 0, 10, 0), figures(0, 0, 1100, 0)), 20.0)
    assert told is not None
    assert told[1]["output_tokens_per_s"] == 10


def test_one_failure_does_not_end_the_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that were taken out of their file would be served for ever."""
    monkeypatch.setattr(reporter, "PUBLISH_S", 0.001)
    looked = 0

    def look() -> None:
        nonlocal looked
        looked += 1

    def publish(figures: Any) -> None:
        raise ValueError("too many figures")

    shared: Any = SimpleNamespace(publish=publish)
    keys: Any = SimpleNamespace(look=look)

    async def some() -> None:
        running = asyncio.create_task(reporter.Reporter(shared, 0, Figures, dict, keys).run())  # type: ignore[arg-type]
        while looked < 2:
            await asyncio.sleep(0.001)
            assert not running.done()
        running.cancel()

    asyncio.run(asyncio.wait_for(some(), WAIT_S))
