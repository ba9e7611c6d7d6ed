"""scripts/gpu: how long its parts may take. No part runs: its programs are pretended."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT = """#!/bin/sh
echo "$@" >>"$TOLD"
shift
exec "$@"
"""


def script(
    tmp_path: Path, part: str, gone_s: int
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """As if it had begun so many seconds ago: its result, and what it ran under timeout(1)."""
    told, path = tmp_path / "told", f"{tmp_path}:{os.environ['PATH']}"
    for name, text in {"cmake": "#!/bin/sh\n", "python": "#!/bin/sh\n", "timeout": TIMEOUT}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "gpu", "--out", tmp_path / "out", "--commit", "abc", part],
        env={
            **os.environ, "PATH": path, "BLINK_PYTHON": str(tmp_path / "python"),
            "BLINK_VLLM": "vllm.tar.xz", "SECONDS": str(gone_s), "TOLD": str(told),
        },
        capture_output=True, text=True, timeout=PROGRAM_S, check=False,
    )  # fmt: skip
    return done, [line.split() for line in told.read_text().splitlines()]


@pytest.mark.parametrize("part", ["sweep", "sweep-interference"])
def test_a_sweep_is_over_ten_minutes_after_the_scripts_start(part: str, tmp_path: Path) -> None:
    done, (_, (bound, *words)) = script(tmp_path, part, 200)
    assert done.returncode == 0, done.stdout
    assert 200 + int(bound) <= 600
    minutes = float(words[words.index("--minutes") + 1])
    assert int(bound) - 60 * minutes == pytest.approx(20, abs=0.1)


def test_a_sweep_for_which_no_time_is_left_fails(tmp_path: Path) -> None:
    done, ran = script(tmp_path, "sweep", 590)
    assert done.returncode == 1
    assert re.search(r"^== sweep failed: \d+ of its 600 s are over$", done.stdout, re.MULTILINE)
    assert len(ran) == 1  # the build
