"""A supervisor whose children are stand-ins: which do not stay up, do not start, or do not end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time

import pytest
from serve_process import ROOT

from blink.supervisor import Supervisor
from blink.supervisor_options import SupervisorOptions
from ringbuffer.region import ring_path

READY = (
    "import os, sys, time; fd = int(sys.argv[2].split('=')[1]); os.write(fd, b'ready'); os.close(fd); "
    "time.sleep({}); sys.exit(3)"
)


def plan(
    name: str, *, frontend: str, backend: list[str] | None = None, timeout_s: float = 20.0
) -> SupervisorOptions:
    ring = f"test-{name}-{os.getpid()}"
    real = ["-m", "blink", "backend", "demo", "--device=cpu", "--slots=16", f"--ring={ring}"]
    return SupervisorOptions(
        backend=[sys.executable, *(backend or real)],
        frontend=[sys.executable, "-c", frontend],
        n_frontends=1,
        environment={**os.environ, "PYTHONPATH": str(ROOT)},
        ring=ring_path(ring),
        host="127.0.0.1",
        port=0,
        backend_restarts=2,
        url="http://nowhere",
        start_timeout_s=timeout_s,
        drain_s=1.0,
        frontend_end_s=1.0,
        backend_end_s=5.0,
    )


def supervise(chosen: SupervisorOptions, stop_after_s: float | None = None) -> int:
    """Runs a supervisor in this process; signals it after a while."""
    if stop_after_s:
        threading.Timer(stop_after_s, os.kill, (os.getpid(), signal.SIGTERM)).start()
    status = asyncio.run(Supervisor(chosen).run())
    assert not chosen.ring.exists()
    return status


@pytest.mark.slow
@pytest.mark.alone
def test_a_frontend_that_does_not_stay_up_is_started_ever_later(capfd: pytest.CaptureFixture[str]) -> None:
    assert supervise(plan("flapping", frontend=READY.format(0.05)), stop_after_s=5.0) == 0
    output = capfd.readouterr().err
    starts = [line for line in output.splitlines() if "starting frontend 0 again" in line]
    assert starts[:3] == [
        "blink: starting frontend 0 again",
        "blink: starting frontend 0 again in 1 s",
        "blink: starting frontend 0 again in 2 s",
    ]
    assert len(starts) <= 4


@pytest.mark.slow
@pytest.mark.alone
def test_a_backend_that_does_not_stay_up_is_given_up(capfd: pytest.CaptureFixture[str]) -> None:
    chosen = plan("dying", frontend=READY.format(60), backend=["-c", READY.format(3)])
    assert supervise(chosen) == 1
    output = capfd.readouterr().err
    assert output.count("the backend ended with exit status 3") == 3
    assert "starting the backend again in 1 s" in output
    assert "the backend ended with exit status 3; stopping" in output


@pytest.mark.slow
def test_a_frontend_that_never_starts_ends_everything(capfd: pytest.CaptureFixture[str]) -> None:
    assert supervise(plan("refusing", frontend="import sys; sys.exit(3)")) == 1
    assert "blink: frontend 0 ended with exit status 3; stopping" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.alone
def test_a_frontend_that_ignores_sigterm_is_killed(capfd: pytest.CaptureFixture[str]) -> None:
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " + READY.format(60)
    began = time.monotonic()
    assert supervise(plan("stubborn", frontend=stubborn), stop_after_s=2.0) == 1
    assert time.monotonic() - began < 6
    assert "blink: frontend 0 does not end; killing it" in capfd.readouterr().err


def test_a_backend_that_does_not_start_in_time(capfd: pytest.CaptureFixture[str]) -> None:
    never = plan("never", frontend="", backend=["-c", "import time; time.sleep(60)"], timeout_s=0.5)
    assert supervise(never) == 1
    assert "blink: not ready after 0.5 s: raise --start-timeout" in capfd.readouterr().err
