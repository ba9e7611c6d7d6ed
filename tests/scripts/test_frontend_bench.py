"""The benchmark of a frontend alone measures streams and whole answers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize("form", [[], ["--whole"]])
def test_tokens_are_counted(form: list[str]) -> None:
    size = ["--streams=4", "--max-tokens=16", "--step-us=1000", "--seconds=4"]
    command = [sys.executable, "scripts/bench/frontend.py", *size, *form]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stderr
    found = re.search(r"(\d+) tokens/s\s+([\d.]+) cores of frontend\s+(\d+) tokens per CPU", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) > 0
    assert float(found[3]) > 0
