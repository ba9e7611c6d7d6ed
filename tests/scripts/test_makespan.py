"""scripts/bench/makespan.py: what it begins again with, when it stops, what it makes of its lines."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from limits import PROGRAM_S

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from bench import makespan
from bench.makespan import Deadline, append, read_rows, table_rows

PROGRAM = Path(makespan.__file__)


def row(scheduler: str, seconds: float, answers: str = "a", **changes: Any) -> dict[str, Any]:
    about = {"what": "makespan", "commit": "abc", "model": "m", "machine": "gpu", "batch": 16}
    found = {"workload": "4x8-2", "turn": 0, "seconds": seconds, "steps": 100, "answers": answers}
    return about | {"scheduler": scheduler} | found | changes


def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    append(path, row("gpu", 1.0))
    with path.open("a") as file:
        file.write(json.dumps(row("async", 2.0))[:30])
    assert [found["scheduler"] for found in read_rows(path, "abc")] == ["gpu"]
    append(path, row("blocking", 3.0))
    assert [found["scheduler"] for found in read_rows(path, "abc")] == ["gpu", "blocking"]
    assert read_rows(path, "other") == []


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text('{"what": "steps"}\n' + json.dumps(row("gpu", 1.0)) + "\n")
    with pytest.raises(SystemExit, match="line 1 is none that this program wrote"):
        read_rows(path, "abc")


def test_no_burst_begins_that_would_end_too_late() -> None:
    deadline = Deadline(1.0, 100.0)
    assert deadline.allows_another(160.0)
    deadline.took(5.0, 20.0)
    assert deadline.allows_another(140.0)
    assert not deadline.allows_another(140.1)
    assert Deadline(None, 0.0).allows_another(1e9)


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
