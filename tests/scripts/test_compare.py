"""Results side by side, and the refusal to compare different loads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
RECORDED = ROOT / "docs" / "benchmarks" / "2026-11-21-load-client.json"


def compare(tmp_path: Path, *results: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    paths = []
    for i, result in enumerate(results):
        paths.append(tmp_path / f"{i}.json")
        paths[-1].write_text(json.dumps(result))
    program = ROOT / "scripts" / "bench" / "compare.py"
    return subprocess.run(
        [sys.executable, program, *paths], capture_output=True, text=True, timeout=PROGRAM_S
    )


def test_every_load_has_a_row_a_server(tmp_path: Path) -> None:
    first = json.loads(RECORDED.read_text())
    done = compare(tmp_path, first, first | {"server": "other"})
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert len({len(row) for row in rows}) == 1
    assert [(row[0], row[2]) for row in rows[2:]] == [
        (load, name) for load in ("16", "64", "128") for name in (first["server"], "other")
    ]
    assert rows[2][4] == f"{first['points'][0]['output_tokens_per_s']:,.0f}"


def test_agents_have_their_score_and_how_many_requests_it_is_of(tmp_path: Path) -> None:
    first = json.loads(RECORDED.read_text())
    figures = {
        "score_tokens_per_s": 45.67,
        "cached_share": 0.93,
        "turns_complete": 80,
        "sessions_complete": 5,
    }
    for point in first["points"]:
        point |= {"agents": figures, "requests_complete": 95}
    done = compare(tmp_path, first, first)
    assert done.returncode == 0, done.stderr
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.stdout.splitlines()]
    assert rows[0][-4:] == ["score tok/s", "cached", "turns", "sessions"]
    assert rows[2][-4:] == ["45.7 of 95", "93%", "80", "5"]


def test_results_of_different_loads_are_refused(tmp_path: Path) -> None:
    first = json.loads(RECORDED.read_text())
    other = json.loads(RECORDED.read_text())
    other["traces"]["16 streams"]["digest"] = "0" * 16
    done = compare(tmp_path, first, other)
    assert done.returncode == 1
    assert "1.json is of another load than" in done.stderr
