"""The token reader under the thread sanitizer: see reader_stress.cpp."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_no_race_and_no_wrong_token(tmp_path: Path) -> None:
    program = tmp_path / "reader_stress"
    sources = [ROOT / "tests/nic_frontend/reader_stress.cpp", *(ROOT / "nic_frontend/native").glob("*.cpp")]
    # -Wno-tsan: the sanitizer does not model fences. What they order here are atomics, which never race.
    flags = ["-std=c++17", "-O1", "-g", "-fsanitize=thread", "-Wno-tsan", f"-I{ROOT}"]
    subprocess.run(["g++", *flags, *map(str, sources), "-o", str(program), "-lpthread"], check=True)
    environment = {**os.environ, "TSAN_OPTIONS": "halt_on_error=1"}
    run = subprocess.run([program], capture_output=True, text=True, timeout=120, env=environment)
    assert run.returncode == 0, run.stderr
