"""A frontend whose event loop does not turn ends and says where it was; one that was only stopped goes on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest
from limits import PROGRAM_S

HANG = """
import asyncio, sys, time
from nic_frontend.watchdog import Watchdog

def hold_up_everybody():
    while True:  # with Python's lock, as a library that does not end
        pass

async def main():
    watchdog = Watchdog(0.4)
    task = asyncio.create_task(watchdog.run())
    await asyncio.sleep(0.2)
    print("turns", flush=True)
    if sys.argv[1] == "hang":
        hold_up_everybody()
    await asyncio.sleep(1.5)
    task.cancel()
    watchdog.close()

asyncio.run(main())
"""


def start(what: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", HANG, what]
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
