"""scripts/soft-roce keeps its promises: a command's end is its own, and no guest outlives the script."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from limits import PROGRAM_S
from needs import skip_if_missing
from waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts/soft-roce"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _machine() -> None:
    done = subprocess.run([SCRIPT, "--setup"], capture_output=True, text=True, timeout=PROGRAM_S)
    skip_if_missing("soft-roce", done)
    assert done.returncode == 0, done.stderr


def guests_of(process: subprocess.Popen[str]) -> list[int]:
    """The process ids of all descendants of a process that are QEMU."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, fields = entry.read_text().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue  # has ended
        parents[int(entry.parent.name)], names[int(entry.parent.name)] = int(fields.split()[1]), name

    def descends(pid: int) -> bool:
        while pid in parents and pid != process.pid:
            pid = parents[pid]
        return pid == process.pid

    return [pid for pid in names if names[pid].startswith("qemu") and descends(pid)]


@pytest.mark.timeout(600)
def test_a_command_keeps_its_arguments_output_and_status() -> None:
    command = [
        "bash",
        "-c",
        'echo "$1"; pwd; ls /sys/class/infiniband; echo aside >&2; exit 7',
        "bash",
        "a 'b' $c",
    ]
    done = subprocess.run(
        [SCRIPT, *command], capture_output=True, text=True, timeout=PROGRAM_S, cwd=ROOT / "scripts"
    )
    assert done.returncode == 7, done.stderr
    assert done.stdout.splitlines() == ["a 'b' $c", str(ROOT / "scripts"), "rxe0", "rxe1"]
    assert "aside" in done.stderr


@pytest.mark.timeout(600)
def test_a_command_that_takes_too_long_is_stopped() -> None:
    done = subprocess.run(
        [SCRIPT, "--limit", "2", "sleep", "300"], capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert done.returncode == 124, done.stderr
    assert "stopped after 2 s" in done.stderr


def test_a_killed_script_takes_its_guest_along() -> None:
    process = subprocess.Popen([SCRIPT, "sleep", "300"], stderr=subprocess.DEVNULL, text=True)
    try:
        wait_until(lambda: guests_of(process))
        guests = guests_of(process)
    finally:
        process.kill()
        process.wait()
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in guests))


def test_without_a_command_it_explains_itself() -> None:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 2
    assert "--limit SECONDS" in done.stderr
