"""What scripts/bench/real_acceptance.py counts, and that it measures the demo model on the CPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.acceptance_prompts import TEXTS, of_tasks
from bench.real_acceptance import add_speedups, all_kinds, with_shares
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]


def row(tokens: int, accepted: int, drafts: int, seconds: float = 2.0) -> dict[str, Any]:
    counts = {"answers": 1, "ended": 1, "steps": 9, "tokens": tokens}
    return {**counts, "draft_tokens": drafts, "accepted_tokens": accepted, "seconds": seconds}


def test_tokens_of_a_step_are_one_and_those_that_were_accepted() -> None:
    found = with_shares(row(tokens=90, accepted=60, drafts=120))
    assert (found["tokens_per_step"], found["accepted"], found["tokens_per_s"]) == (3.0, 0.5, 45.0)
    assert with_shares(row(tokens=9, accepted=0, drafts=0))["accepted"] is None


def test_all_kinds_are_added_up() -> None:
    found = all_kinds([row(10, 4, 8), row(30, 2, 4)])
    assert found == {"kind": "all", **row(40, 6, 12, 4.0), "answers": 2, "ended": 2, "steps": 18}


def test_a_way_is_compared_with_none_in_the_same_place() -> None:
    rows: list[dict[str, Any]] = [
        {"way": way, "sampling": "greedy", "requests": n, "kind": "code", "tokens_per_s": rate}
        for way, n, rate in (("none", 1, 10.0), ("none", 8, 40.0), ("x", 8, 60.0), ("x", 2, 5.0))
    ]
    add_speedups(rows)
    assert [one.get("speedup") for one in rows] == [None, None, 1.5, None]


def test_there_are_several_questions_of_each_kind() -> None:
    for kinds in (TEXTS, of_tasks()):
        assert all(len(set(questions)) >= 4 for questions in kinds.values())
    assert {"summary", "edit", "code", "count"} < TEXTS.keys()


@pytest.mark.slow
def test_the_demo_model_is_measured(tmp_path: Path) -> None:
    command = [
        sys.executable, "scripts/bench/real_acceptance.py", "--model=demo", "--device=cpu",
        "--prompts=tasks", "--tokens=12", "--requests=4", f"--out={tmp_path / 'record'}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "record").read_text())["rows"]
    assert {found["sampling"] for found in rows} == {"greedy", "0.7"}
    assert len(rows) == 2 * 2 * (len(of_tasks()) + 1)
    assert all(("speedup" in found) == (found["way"] != "none") for found in rows)
    assert sum(found["accepted_tokens"] for found in rows if found["way"] == "none") == 0
