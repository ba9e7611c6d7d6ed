"""scripts/bench/makespan.py: what it begins again with, when it stops, what it makes of its lines."""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from limits import PROGRAM_S

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from bench import makespan
from bench.burst_times import BurstTimes, Deadline
from bench.json_lines import append_line
from bench.makespan import read_rows, table_rows

from blink.bench.scheduler_runs import Round, parse_design, parse_workload

PROGRAM = Path(makespan.__file__)


def row(scheduler: str, seconds: float, answers: str = "a", **changes: Any) -> dict[str, Any]:
    about = {"what": "makespan", "commit": "abc", "model": "m", "machine": "gpu", "batch": 16}
    found = {"workload": "4x8-2", "turn": 0, "seconds": seconds, "steps": 100, "answers": answers}
    return about | {"scheduler": scheduler} | found | changes


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    append_line(path, row("gpu", 1.0))
    with path.open("a") as file:
        file.write(json.dumps(row("async", 2.0))[:30])
    assert [found["scheduler"] for found in read_rows(path, "abc")] == ["gpu"]
    append_line(path, row("blocking", 3.0))
    assert [found["scheduler"] for found in read_rows(path, "abc")] == ["gpu", "blocking"]
    assert read_rows(path, "other") == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"what": "steps"}\n' + json.dumps(row("gpu", 1.0)) + "\n")
    with pytest.raises(SystemExit, match="line 1 is none that this program wrote"):
        read_rows(path, "abc")


GPU, BLOCKING, SLOWED = (parse_design(text) for text in ("gpu", "blocking", "blocking+1000"))
SHORT, LONG = parse_workload("4x8-10"), parse_workload("4x8-100")


def test_what_would_end_too_late_does_not_begin() -> None:
    now = 100.0
    deadline = Deadline(1.0, lambda: now)
    assert deadline.allows(60.0)
    now = 140.0
    assert deadline.allows(20.0)
    assert not deadline.allows(20.1)
    assert Deadline(None, lambda: 0.0).allows(1e9)


def test_a_longer_workload_is_not_estimated_by_a_shorter_one_as_if_it_were_one() -> None:
    times = BurstTimes()
    times.took(GPU, SHORT, 2.0, 10)
    assert times.estimate(GPU, SHORT) == pytest.approx(2.2)
    assert times.estimate(GPU, LONG) > 10 * 2.0
    times.took(GPU, LONG, 15.0, 100)  # seen, it is known better
    assert times.estimate(GPU, LONG) == pytest.approx(16.5)
    assert times.estimate(GPU, SHORT) == pytest.approx(2.2)


def test_a_scheduler_is_estimated_by_the_slowest_other_and_its_hosts_work() -> None:
    times = BurstTimes()
    times.took(GPU, LONG, 10.0, 1000)
    times.took(BLOCKING, LONG, 12.0, 1000)
    assert times.estimate(parse_design("async"), LONG) == pytest.approx(13.2)
    assert times.estimate(SLOWED, LONG) == pytest.approx(1.1 * 13.0)  # 1000 steps of 1 ms more


class Pretended:
    """Schedulers whose bursts take a second for each token of an answer, and 5 s to change to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.ran: list[tuple[str, str]] = []
        monkeypatch.setattr(makespan, "runs_under", self.under)
        monkeypatch.setattr("bench.makespan.time", SimpleNamespace(monotonic=lambda: self.now))

    @contextlib.contextmanager
    def under(self, _: Any, design: Any) -> Iterator[Any]:
        self.now += 5.0

        def run(workload: Any) -> Round:
            self.now += workload.output
            self.ran.append((str(design), str(workload)))
            return Round(workload.output, [[1]], np.zeros(workload.output), 0, 0)

        yield SimpleNamespace(run=run)


def rows_until(minutes: float, monkeypatch: pytest.MonkeyPatch, *workloads: str) -> Pretended:
    """What one scheduler and then another measure in so many minutes."""
    pretended = Pretended(monkeypatch)
    arguments = argparse.Namespace(
        batch=4, rounds=2, makespan=[parse_workload(text) for text in workloads], schedulers=[GPU, BLOCKING]
    )
    deadline = Deadline(minutes, lambda: pretended.now)
    found = makespan.measure(
        cast(Any, None), makespan.wanted_keys(arguments, "m", "gpu"), set(), BurstTimes(), deadline
    )
    assert all(row["seconds"] > 0 for row in found)
    return pretended


def test_warm_ups_and_changes_of_scheduler_are_in_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of gpu: 5 s for the change, 8 s of warm-up, 2 bursts of 20 s: at 53 s. One more burst would end in time,
    # but not behind blocking's change and warm-up.
    pretended = rows_until(80 / 60, monkeypatch, "4x8-20")
    assert pretended.ran == [("gpu", "4x8-8"), ("gpu", "4x8-20"), ("gpu", "4x8-20")]
    assert pretended.now <= 80


def test_a_long_workload_behind_a_short_one_does_not_end_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    pretended = rows_until(150 / 60, monkeypatch, "4x8-10", "4x8-100")
    assert {workload for _, workload in pretended.ran} == {"4x8-8", "4x8-10"}
    assert pretended.now <= 150


def test_ratios_are_of_medians_and_what_a_step_takes_more_is_told() -> None:
    rows = [row("gpu", seconds) for seconds in (1.0, 1.1, 0.9)]
    rows += [row("blocking", seconds, answers) for seconds, answers in ((1.3, "a"), (1.2, "b"))]
    gpu, blocking, least, most = table_rows(rows, "gpu")
    assert gpu[3:5] == ["1.000", "1.000"]
    assert blocking[2:] == ["2", "1.250", "1.250", "1.091", "1.444", "2500", "1 of 2"]
    assert [line[7] for line in (least, most)] == ["1600", "7000"]  # 16 and 70 % of 10 ms
    assert table_rows(rows[3:], "gpu") == []


@pytest.mark.slow
def test_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    command = [sys.executable, str(PROGRAM), "demo", "--device=cpu", "--makespan=2x8-4", "--batch=2"]
    command += ["--commit=abc", f"--out={path}"]

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *more], capture_output=True, text=True, timeout=PROGRAM_S, check=False
        )

    assert run("--schedulers=gpu", "--rounds=1").returncode == 0
    late = run("--schedulers=gpu,blocking+100", "--rounds=2", "--minutes=0.0001")
    assert late.returncode == makespan.SOMETHING_MISSING
    assert "3 of 4 bursts are missing" in late.stderr
    assert run("--schedulers=gpu,blocking+100", "--rounds=2").returncode == 0
    rows = read_rows(path, "abc")
    assert [(found["scheduler"], found["turn"]) for found in rows] == [
        ("gpu", 0),
        ("gpu", 1),
        ("blocking+100", 0),
        ("blocking+100", 1),
    ]
    assert len({found["answers"] for found in rows}) == 1
