"""A frontend whose event loop does not turn ends and says where it was; one that was only stopped goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from limits import PROGRAM_S

HANG = """
import asyncio, os, sys, time
from nic_frontend.processes.watchdog import Watchdog

def hold_up_everybody():
    while True:  # with Python's lock, as a library that does not end
        pass

async def main():
    watchdog = Watchdog(float(sys.argv[1]))
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0.2)
    print("turns", flush=True)
    if sys.argv[2] == "hang":
        hold_up_everybody()
    if sys.argv[2] == "starve":
        os.sched_setaffinity(0, {int(sys.argv[3])})
        os.nice(19)
        before = time.process_time()
        while time.process_time() - before < 0.05:  # takes seconds beside the others
            pass
    await asyncio.sleep(1.5)
    task.cancel()
    watchdog.close()

asyncio.run(main())
"""


BUSY = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


def start(*what: str, limit_s: float = 0.4) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HANG, str(limit_s), *what]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "turns\n"
    return process


def test_a_loop_that_does_not_turn_ends_the_process() -> None:
    """F10."""
    process = start("hang")
    _, told = process.communicate(timeout=PROGRAM_S)
    assert process.returncode == -signal.SIGABRT
    assert "the event loop has not turned" in told
    assert "in hold_up_everybody" in told


@pytest.mark.slow
def test_a_loop_that_waits_for_a_core_goes_on() -> None:
    """Others have it: that is no hang."""
    core = min(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", BUSY, str(core)]) for _ in range(2)]
    try:
        process = start("starve", str(core), limit_s=1.5)
        _, told = process.communicate(timeout=PROGRAM_S)
        assert (process.returncode, told) == (0, "")
    finally:
        for other in others:
            other.kill()
            other.wait()


@pytest.mark.parametrize("stopped_s", [0.0, 1.0])
def test_a_process_that_stood_still_goes_on(stopped_s: float) -> None:
    """F13: nobody hangs who was stopped."""
    process = start("turn")
    if stopped_s:
        process.send_signal(signal.SIGSTOP)
        time.sleep(stopped_s)
        process.send_signal(signal.SIGCONT)
    _, told = process.communicate(timeout=PROGRAM_S)
    assert (process.returncode, told) == (0, "")
