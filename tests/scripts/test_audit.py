"""scripts/audit passes only what was audited."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = "numpy  Dependency not found on PyPI and could not be audited: numpy (2.4.6)"

UNREACHABLE = "Traceback (most recent call last):\nrequests.exceptions.ConnectionError: Max retries exceeded"
SLOW = "ERROR:pip_audit._cli:Could not connect to PyPI's vulnerability feed"
BROKEN = "ERROR:pip_audit._cli:requirement numpy==2.4.6 does not contain a hash"


def audit(checkout: Path, said: str | None, status: int) -> subprocess.CompletedProcess[str]:
    """scripts/audit in a checkout whose pip-audit says that; None: it is missing."""
    (checkout / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "audit", checkout / "scripts" / "audit")
    (checkout / "requirements.lock").write_text("numpy==2.4.6\nclick==8.5.1\n")
    if said is not None:
        stand_in = checkout / ".venv" / "bin" / "pip-audit"
        stand_in.parent.mkdir(parents=True)
        stand_in.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\nexit {status}\n")
        stand_in.chmod(0o755)
    return subprocess.run(
        [checkout / "scripts" / "audit"], capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )


@pytest.mark.parametrize(
    ("said", "status", "exits", "told"),
    [
        ("No known vulnerabilities found", 0, 0, "no known vulnerability in 2 packages"),
        ("Found 1 known vulnerability in 1 package", 1, 1, "Found 1 known vulnerability"),
        (UNREACHABLE, 1, 2, "NOTHING WAS AUDITED: requests.exceptions.ConnectionError"),
        (SLOW, 1, 2, "NOTHING WAS AUDITED: ERROR:pip_audit._cli:Could not connect"),
        (BROKEN, 1, 1, "NOTHING WAS AUDITED: ERROR:pip_audit._cli:requirement numpy"),
        (f"No known vulnerabilities found\n{SKIPPED}", 0, 2, "1 of the 2 packages were NOT audited"),
        (f"{SKIPPED}\nFound 1 known vulnerability in 1 package", 1, 1, "Found 1 known vulnerability"),
        (None, 0, 1, "pip-audit is missing"),
    ],
)
def test_only_what_was_audited_passes(
    tmp_path: Path, said: str | None, status: int, exits: int, told: str
) -> None:
    done = audit(tmp_path, said, status)
    assert done.returncode == exits, done.stdout + done.stderr
    assert told in done.stdout + done.stderr
