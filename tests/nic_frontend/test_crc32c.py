"""The prompt's checksum on this machine's processor; scripts/cross runs the same program for aarch64."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from limits import PROGRAM_S


def test_instruction_and_table_agree_with_the_rfc(build_program: Callable[..., Path]) -> None:
    sources = ["tests/nic_frontend/crc32c.cpp", "nic_frontend/native/crc32c.cpp"]
    program = build_program("crc32c", sources)
    run = subprocess.run([program], capture_output=True, text=True, timeout=PROGRAM_S)
    assert run.returncode == 0, run.stderr
