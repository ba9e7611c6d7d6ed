"""The programs of scripts/ start: what they import from the packages is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
BENCHES = [path for path in sorted((SCRIPTS / "bench").glob("*.py")) if "__main__" in path.read_text()]
PROGRAMS = [*BENCHES, SCRIPTS / "train_demo_model.py"]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_starts_and_explains_itself(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, program, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
