"""The signals by which a process is asked to end: each process ends, however close together they come."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from limits import PROGRAM_S
from serve_process import ROOT

from gpu_backend import signals
from gpu_backend.signals import ENDING, REPEATED_S, Signals

TRIALS = 200

# Forks children that wait as a backend does, sends each three signals, and prints how many hang.
PROGRAM = """
import os, signal, time
from gpu_backend.signals import Signals

def child(ready):
    with Signals() as signals:
        os.write(ready, b"x")
        while not signals.count():
            signals.wait(0.2)
    time.sleep(0.005)  # the signals behind the first one find the process at its end
    os._exit(0)

def ended(pid):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if (status := os.waitpid(pid, os.WNOHANG))[0]:
            return status[1] == 0
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False

hanging = 0
for trial in range({trials}):
    read_end, write_end = os.pipe()
    if not (pid := os.fork()):
        child(write_end)
    os.read(read_end, 1)
    os.close(read_end), os.close(write_end)
    time.sleep(0.001)
    for _ in range(3):
        os.kill(pid, signal.SIGTERM)
        until = time.perf_counter() + (trial % 20) * 4e-6
        while time.perf_counter() < until:
            pass
    hanging += not ended(pid)
print(hanging)
"""


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in ENDING]
    yield
    for number, handler in zip(ENDING, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.slow
def test_no_process_hangs_by_signals_that_come_close_together() -> None:
    program = PROGRAM.format(trials=TRIALS)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        check=True,
    )
    assert done.stdout == "0\n"


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_wakes_and_is_counted(number: signal.Signals) -> None:
    with Signals() as ending:
        assert ending.count() == 0
        threading.Timer(0.05, os.kill, (os.getpid(), number)).start()
        began = time.monotonic()
        ending.wait(60)
        assert time.monotonic() - began < 30
        assert ending.count() == 1
        assert ending.count() == 1


def test_what_comes_right_behind_a_signal_is_the_same_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    clock = Clock()
    monkeypatch.setattr(signals, "time", clock)
    with Signals() as ending:
        for number, passed, wishes in (
            (signal.SIGTERM, 0.0, 1),
            (signal.SIGINT, 0.0, 1),
            (signal.SIGINT, REPEATED_S, 1),
            (signal.SIGTERM, REPEATED_S + 0.125, 2),
        ):
            clock.now += passed
            os.kill(os.getpid(), number)
            assert ending.count() == wishes


def test_a_flood_of_signals_fills_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit is lost, which takes nothing away from the wish."""
    with Signals() as ending:
        while True:
            try:
                os.write(ending._write_end, bytes([signal.SIGTERM]) * 4096)
            except BlockingIOError:
                break
        os.kill(os.getpid(), signal.SIGTERM)
        assert ending.count() == 1
        ending.wait(0.01)


def test_signals_behind_the_end_change_nothing() -> None:
    with Signals():
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def test_hanging_up_ends_nothing() -> None:
    """It is what tells a server that its log was renamed."""
    before, hangups = signal.getsignal(signal.SIGHUP), list[int]()
    with Signals(lambda: hangups.append(1)) as asked:
        os.kill(os.getpid(), signal.SIGHUP)
        asked.wait(60)
        assert asked.count() == 0
        assert hangups == [1]
        assert asked.count() == 0
        assert hangups == [1]
    signal.signal(signal.SIGHUP, before)
