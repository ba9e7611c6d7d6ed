"""Loads by name, and the levels of service that windows are judged by."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import numpy as np
import pytest

from blink.bench import report
from blink.bench.levels import Level, judged, levels
from blink.bench.loads import loads
from blink.bench.options import OF_AGENTS, ServeOptions
from blink.bench.presets import LOADS, PRESETS, chosen_with, described
from blink.bench.serve import check, configure
from blink.bench.trace import Trace, lengths, uniform


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_a_load_that_can_be_made(name: str) -> None:
    values = chosen_with(name, {"preset": name})
    options = ServeOptions(**((OF_AGENTS if "agents" in values else {}) | values))
    check(options)
    made = loads(dataclasses.replace(options, duration_s=5.0))
    asked = [options.rate, options.concurrency, options.agents]
    assert len(made) == sum(len(values) for values in asked if values)
    longest = options.input.high + options.output.high
    assert all(
        (load.work.inputs + load.work.outputs).max() <= longest
        for load in made
        if isinstance(load.work, Trace)
    )
    assert (described(name) or {})["source"]


def test_what_is_given_takes_the_place_of_the_presets() -> None:
    chosen = {"preset": "inferencex-8k-1k", "rate": (2.0,), "output": lengths("64")}
    values = chosen_with("inferencex-8k-1k", chosen)
    assert values["rate"] == (2.0,)
    assert "concurrency" not in values
    assert str(values["output"]) == "64"
    assert str(values["input"]) == "6553-8192"
    assert chosen_with(None, chosen) == chosen


def test_a_name_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    assert parser.parse_args(["http://h", "--preset=agents"]).preset == "agents"
    with pytest.raises(SystemExit):
        parser.parse_args(["http://h", "--preset=mlperf"])
    assert "silybench-toolcall" in capsys.readouterr().err


def test_uniform_lengths_are_all_as_likely_and_keep_their_bounds() -> None:
    assert lengths("7-10") == uniform(7, 10)
    assert str(lengths("7-10")) == "7-10"
    sample = uniform(7, 10).sample(8000, np.random.default_rng(1))
    found, counts = np.unique(sample, return_counts=True)
    assert found.tolist() == [7, 8, 9, 10]
    assert (np.abs(counts - 2000) < 200).all()
    for text in ("10-7", "0-5", "7-"):
        with pytest.raises(ValueError, match=r"does not hold|is no length"):
            lengths(text)


def point(**changes: Any) -> dict[str, Any]:
    times = {"ttft_ms": {"p50": 20.0, "p99": 480.0}, "tpot_ms": {"p99": 31.0}, "itl_ms": {"p50": 9.0}}
    return {"requests_failed": 0} | times | changes


def test_a_window_keeps_a_level_or_breaks_it() -> None:
    wanted = levels("ttft:p99:480 tpot:p99:30 itl:p50:50")
    assert wanted[2] == Level("itl", "p50", 50.0)
    told = {"ttft:p99:480": True, "tpot:p99:30": False, "itl:p50:50": True}
    assert judged(point(), wanted) == told
    assert judged(point(ttft_ms=None), wanted) == told | {"ttft:p99:480": False}
    assert not any(judged(point(requests_failed=1), wanted).values())


@pytest.mark.parametrize("text", ["ttft:2000", "e2e:p99:5", "ttft:p42:5", "ttft:p99:soon"])
def test_a_level_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no level|not a time"):
        levels(text)


def test_only_presets_name_a_load_and_each_names_one() -> None:
    assert all(len(preset.values.keys() & set(LOADS)) == 1 for preset in PRESETS.values())


def test_the_table_says_which_levels_were_kept() -> None:
    latency = {"p50": 1.0, "p99": 2.0, "p99.9": 3.0, "max": 4.0, "mean": 1.0}
    window = {
        "rate": 3.0, "concurrency": None, "antagonists_per_core": 0, "requests_sent": 9, "requests_failed": 0,
        "completed_per_s": 3.0, "output_tokens_per_s": 9.0, "ttft_ms": latency, "tpot_ms": latency,
        "itl_ms": latency, "tokens_counted_by": "usage", "tokens_per_chunk": 1.0, "failures": {},
        "tokens_missing": 0, "cpu": {}, "client": {"bottleneck": False}, "goodput_per_s": 2.5,
        "levels": {"ttft:p99:2": True, "itl:p50:0.5": False},
    }  # fmt: skip
    result = {"server": "s", "model": "m", "began": "now", "points": [window], "serviceable_rule": "",
              "serviceable_per_s": {}, "preset": described("mlperf-8b-server")}  # fmt: skip
    text = report.table(result)
    assert "mlperf-8b-server: as MLPerf" in text
    head, row = (line.split() for line in text.splitlines() if "within SLO/s" in line or "kept" in line)
    assert head[-2:] == ["ttft:p99:2", "itl:p50:0.5"]
    assert row[-2:] == ["kept", "broken"]
