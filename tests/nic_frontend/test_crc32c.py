"""The prompt's checksum on this machine's processor; scripts/cross runs the same program for aarch64."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_instruction_and_table_agree_with_the_rfc(tmp_path: Path) -> None:
    program = tmp_path / "crc32c"
    sources = [ROOT / "tests/nic_frontend/crc32c.cpp", ROOT / "nic_frontend/native/crc32c.cpp"]
    subprocess.run(["g++", "-std=c++17", f"-I{ROOT}", *map(str, sources), "-o", program], check=True)
    run = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
