"""How scripts/bench/same_answers.py counts differences, and that on the CPU it finds none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.same_answers import ANSWER, compared
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]


def test_tokens_count_until_an_answer_differs() -> None:
    same, other = [1] * ANSWER, [1] * 9 + [2] * (ANSWER - 9)
    found = compared([same, same], [same, other])
    assert found == {"answers": 2, "differ": 1, "tokens": ANSWER + 10, "rate": 1 / (ANSWER + 10)}


@pytest.mark.slow
@pytest.mark.parametrize("cached", [False, True])
def test_drafts_of_the_command_line_change_no_answer(tmp_path: Path, cached: bool) -> None:
    command = [
        sys.executable, "scripts/bench/same_answers.py", "--device=cpu", "--tokens=1600", "--clients=8",
        f"--out={tmp_path / 'record'}", "--ways", '{"num_speculative_tokens": 3}',
        *(["--cached-prompts"] if cached else []),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "record").read_text())["rows"]
    assert [row["sampling"] for row in rows] == ["greedy"] * 3 + ["sampled"] * 3
    assert [row.get("differ") for row in rows] == [None, 0, 0, None, 0, 0]
    assert [row["prefix_hits"] > 0 for row in rows] == [cached] * 6
    assert [row["draft_tokens"] > 0 for row in rows] == [False, False, True, False, False, True]
