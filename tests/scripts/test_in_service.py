"""What scripts/bench/in_service.py makes of a server's steps and of its rows, and the program on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import in_service, ways
from bench.served import IDLE_NS, gaps_us
from limits import PROGRAM_S

from gpu_backend.scheduler_abi import StepTrace

ROOT = Path(__file__).resolve().parents[2]
LOOK_UP = '{"method": "ngram", "num_speculative_tokens": 3}'


def trace(*steps: tuple[int, int, int, int, int]) -> Any:
    """Of steps with id, start, end, when the end was seen, and the turn that launched it, in us."""
    found = np.zeros(len(steps), StepTrace)
    for row, (number, *times) in zip(found, steps, strict=True):
        row["id"] = number
        for name, time in zip(("start_ns", "done_ns", "seen_ns", "turn_ns"), times, strict=True):
            row[name] = 1000 * time
    return found


def test_gaps_are_between_steps_that_follow_one_another() -> None:
    steps = trace((1, 0, 50, 51, 0), (2, 60, 90, 91, 51), (4, 110, 140, 141, 100), (5, 141, 150, 151, 112))
    assert gaps_us(steps, 0, 5).tolist() == [10, 1]
    assert gaps_us(steps, 1, 5).tolist() == [1]
    assert gaps_us(steps, 1, 4).tolist() == []


def test_nobody_waits_while_nobody_is_served() -> None:
    later = IDLE_NS // 1000 + 60
    steps = trace((1, 0, 50, 51, 0), (2, later + 5, later + 30, later + 31, later))
    assert gaps_us(steps, 0, 2).tolist() == []


def row(way: str, stopped: bool = False, tpot: float | None = 2.0) -> dict[str, Any]:
    figures = {"tpot_p50_ms": 1.0, "tpot_p99_ms": tpot, "itl_p99_ms": 3.0, "ttft_p99_ms": 4.0}
    return {"way": way, "rate": 8.0, "backend_stopped": stopped, "tokens_per_s": 100.0, **figures}


def test_ways_are_compared_with_none_and_stopped_backends_with_others() -> None:
    found = in_service.compared([row("none"), row("0.5", tpot=3.0), row("0.5", stopped=True)])
    assert [(one["against"], one["tpot_p99_ms"]) for one in found] == [
        ("none", 1.5),
        ("backend not stopped", pytest.approx(2 / 3)),
    ]
    assert found[0]["no_worse"] is False


def test_what_has_no_figure_is_not_compared() -> None:
    (found,) = in_service.compared([row("none"), row("0.5", tpot=None)])
    assert found["tpot_p99_ms"] is None


def test_ways() -> None:
    assert ways.parse_way("none")[1].max_drafts == 0
    chances = ways.parse_way("0.8,0.7")[1]
    assert (chances.max_drafts, chances.acceptance) == (2, (0.8, 0.7))
    edits = ways.parse_way("edits=0.9")[1]
    assert (edits.max_drafts, edits.copied_share) == (5, 0.9)
    looked_up = ways.parse_way(LOOK_UP)[1]
    assert (looked_up.max_drafts, looked_up.acceptance) == (3, ())
    config = ways.config_for([ways.NONE, chances, edits])
    assert config is not None
    assert (config.max_drafts, config.copied_share) == (5, 0.0)
    assert ways.config_for([ways.NONE]) is None
    with pytest.raises(ValueError, match="not a list of numbers"):
        ways.parse_way("often")


@pytest.mark.slow
@pytest.mark.alone
def test_rates_are_measured_in_each_way(tmp_path: Path) -> None:
    command = [
        sys.executable, "scripts/bench/in_service.py", "--model=models/demo", "--device=cpu", "--rates=4",
        "--input=16", "--output=16", "--window=2", "--frontends=1", "--clients=1", "--max-batch=8",
        "--kv-memory=64MiB", "--commit=abc", f"--out={tmp_path / 'record'}", "--ways", "none", LOOK_UP,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record").read_text())
    assert (record["commit"], record["machine"], record["model"]) == ("abc", "cpu", "demo")
    assert [backend["speculates"] for backend in record["backends"]] == [False, True]
    assert record["backends"][1]["shapes"] > record["backends"][0]["shapes"]
    plain, drafting = record["rows"]
    assert plain["requests"] == plain["tpot_n"] == drafting["requests"] > 0
    assert plain["gaps_n"] > 0
    assert plain["draft_tokens"] == 0 < drafting["draft_tokens"]
    assert [one["against"] for one in record["compared"]] == ["none"]
