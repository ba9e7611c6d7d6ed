"""The meter of holds of Python's lock (turns.py), by which fuzzers judge the frontend."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from limits import PROGRAM_S

HERE = Path(__file__).parent
PROGRAM = """
import threading, time
from turns import LockHolds

for _ in range(16):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
lock = LockHolds()
time.sleep(0.2)
lock.longest_s = 0.0
end = time.monotonic() + 1
while time.monotonic() < end:
    {work}
time.sleep(0.2)
print(lock.longest_s)
"""


@pytest.mark.parametrize(
    ("work", "holds"),
    [
        ("max(range(20_000_000))", True),  # one call, within which nobody else has a turn
        ("max(range(20_000))", False),  # as long in all
    ],
)
def test_one_long_hold_is_noticed_and_many_short_ones_are_not_added_up(work: str, holds: bool) -> None:
    """The meter itself takes the lock anew for each thread that it looks at."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), str(HERE.parents[1])]),
    }
    command = [sys.executable, "-c", PROGRAM.format(work=work)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=PROGRAM_S
    )
    assert (float(done.stdout) > 0.1) == holds
