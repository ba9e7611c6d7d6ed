"""A supervisor whose children are stand-ins: which do not stay up, do not start, or do not end."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from limits import START_S, WAIT_S
from serve_process import ROOT

from blink import supervisor
from blink.supervisor import Supervisor
from blink.supervisor_options import SupervisorOptions
from ringbuffer.region import ring_path

READY = "import os, sys, time; fd = int(sys.argv[2].split('=')[1]); os.write(fd, b'ready'); os.close(fd)\n"
STAYS = READY + "time.sleep(10_000)"


def ends_when_there_is(path: Path) -> str:
    return READY + f"while not os.path.exists({str(path)!r}): time.sleep(0.01)\nsys.exit(3)"


def plan(
    name: str, *, frontend: str, backend: list[str] | None = None, timeout_s: float = START_S
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
        backend_end_s=WAIT_S,
    )


Said = list[tuple[float, str]]  # when, and what; the last is the exit status


def supervise(chosen: SupervisorOptions, stop_at: str = "", served: Path | None = None) -> Said:
    """Runs a supervisor in this process, and signals it when it has said such a line. When it says that it
    serves, there is a file `served`."""
    said: Said = []
    tell = supervisor.say

    def say(line: str) -> None:
        said.append((time.monotonic(), line))
        tell(line)
        if served and "ready after" in line:
            served.touch()
        if stop_at and stop_at in line:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supervisor, "say", say)
        status = asyncio.run(Supervisor(chosen).run())
    assert not chosen.ring.exists()
    return [*said, (time.monotonic(), str(status))]


@pytest.mark.slow
def test_a_frontend_that_does_not_stay_up_is_started_ever_later(tmp_path: Path) -> None:
    """If it ended before the service is announced, that would be the end of all."""
    served = tmp_path / "served"
    chosen = plan("flapping", frontend=ends_when_there_is(served))
    said = supervise(chosen, stop_at="again in 2 s", served=served)
    starts = [(at, line) for at, line in said if "starting frontend 0 again" in line]
    assert [line for _, line in starts] == [
        "starting frontend 0 again",
        "starting frontend 0 again in 1 s",
        "starting frontend 0 again in 2 s",
    ]
    assert starts[2][0] - starts[1][0] >= 1
    assert said[-1][1] == "0"


@pytest.mark.slow
def test_a_backend_that_does_not_stay_up_is_given_up(tmp_path: Path) -> None:
    served = tmp_path / "served"
    chosen = plan("dying", frontend=STAYS, backend=["-c", ends_when_there_is(served)])
    lines = [line for _, line in supervise(chosen, served=served)]
    assert sum("the backend ended with exit status 3" in line for line in lines) == 3
    assert "starting the backend again in 1 s" in lines
    assert "the backend ended with exit status 3; stopping" in lines
    assert lines[-1] == "1"


@pytest.mark.slow
def test_a_frontend_that_never_starts_ends_everything(capfd: pytest.CaptureFixture[str]) -> None:
    assert supervise(plan("refusing", frontend="import sys; sys.exit(3)"))[-1][1] == "1"
    assert "blink: frontend 0 ended with exit status 3; stopping" in capfd.readouterr().err


@pytest.mark.slow
def test_a_frontend_that_ignores_sigterm_is_killed() -> None:
    """It would stay for hours."""
    stubborn = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); " + STAYS
    said = supervise(plan("stubborn", frontend=stubborn), stop_at="ready after")
    (asked,) = (at for at, line in said if "ready after" in line)
    (killed,) = (at for at, line in said if line == "frontend 0 does not end; killing it")
    assert killed - asked < 30  # its patience is one second, by default minutes
    assert said[-1][1] == "1"


def test_a_backend_that_does_not_start_in_time(capfd: pytest.CaptureFixture[str]) -> None:
    never = plan("never", frontend="", backend=["-c", "import time; time.sleep(60)"], timeout_s=0.5)
    assert supervise(never)[-1][1] == "1"
    assert "blink: not ready after 0.5 s: raise --start-timeout" in capfd.readouterr().err
