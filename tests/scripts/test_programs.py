"""The programs of scripts/ start, and say what they are for without doing it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
OTHERS = ("board_picture.py", "scale/simulate.py", "tensorrt_report.py", "train_demo_model.py")
BENCHES = [path for path in sorted((SCRIPTS / "bench").glob("*.py")) if "__main__" in path.read_text()]
FUZZERS = [
    path for path in sorted((SCRIPTS / "fuzz").glob("*.py")) if "def main() -> int" in path.read_text()
]
PROGRAMS = [*BENCHES, *FUZZERS, *(SCRIPTS / name for name in OTHERS)]
TORCH = (
    "quality",
    "transformers_batching",
    "transformers_busy",
    "train_demo_model",
)  # which takes seconds to import


@pytest.mark.parametrize(
    "program",
    [pytest.param(path, marks=[pytest.mark.slow] * (path.stem in TORCH), id=path.stem) for path in PROGRAMS],
)
def test_a_program_starts_and_explains_itself(program: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, program, "--help"], cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize(
    "name",
    [
        "audit",
        "lock",
        "cross",
        "setup",
        "soft-roce",
        "test",
        "demo",
        "demo_chat.py",
        "wheels",
        "images",
        "with-packages",
        "test-needs",
        "chromium",
        "o200k",
        "real_model",
    ],
)
def test_a_script_is_explained_by_its_head(name: str, flag: str, tmp_path: Path) -> None:
    script = SCRIPTS / name
    command = [sys.executable, script] if script.suffix else [script]
    done = subprocess.run([*command, flag], cwd=tmp_path, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] in script.read_text().split("\n\n")[0]


@pytest.mark.parametrize("name", ["cross", "setup", "demo", "soft-roce", "wheels", "real_model"])
def test_a_script_refuses_what_it_does_not_know(name: str) -> None:
    done = subprocess.run([SCRIPTS / name, "--nope"], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 2
    assert done.stderr
    assert done.stdout == ""
