"""The systemd units are sound, and have what their environment files set."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PLANES = ("backend", "frontend")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("plane", PLANES)
def test_systemd_finds_nothing_wrong(plane: str, tmp_path: Path) -> None:
    unit = tmp_path / f"blink-{plane}.service"
    program = Path(sys.executable)  # one that is there: systemd looks
    unit.write_text((DEPLOY / unit.name).read_text().replace("/opt/blink/bin/blink", str(program)))
    done = subprocess.run(
        ["systemd-analyze", "verify", unit], capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert done.returncode == 0, done.stderr
    assert unit.name not in done.stderr


@pytest.mark.parametrize("plane", PLANES)
def test_each_variable_of_the_command_is_in_the_environment_file(plane: str) -> None:
    (command,) = re.findall(
        r"^ExecStart=(.*)$", (DEPLOY / f"blink-{plane}.service").read_text(), re.MULTILINE
    )
    used = set(re.findall(r"\$\{(\w+)\}", command))
    assert used
    assert used <= set(re.findall(r"^(\w+)=.+$", (DEPLOY / f"{plane}.env").read_text(), re.MULTILINE))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("plane", PLANES)
def test_the_units_take_away_what_the_planes_do_not_need(plane: str) -> None:
    """By systemd's own judgement: 0 is no exposure, 10 is all of it."""
    unit = DEPLOY / f"blink-{plane}.service"
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", unit]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("plane", PLANES)
@pytest.mark.parametrize(
    "option",
    ["MemoryMax=", "LimitCORE=0", "SystemCallFilter=", "ProtectProc=", "WatchdogSec=", "Type=notify"],
)
def test_a_service_is_bounded_and_watched(plane: str, option: str) -> None:
    text = (DEPLOY / f"blink-{plane}.service").read_text()
    assert any(line.startswith(option) for line in text.splitlines())
