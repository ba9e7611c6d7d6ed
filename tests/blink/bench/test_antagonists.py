"""Antagonists start where they are told to, work, and never outlive whoever started them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from limits import WAIT_S
from process_state import alive
from serve_process import ROOT
from waiting import wait_until

from blink.bench.antagonists import KINDS, Antagonists
from blink.bench.cpu_time import tree
from blink.errors import CommandError
from blink.flags import cores

CORE = min(os.sched_getaffinity(0))

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_works_on_its_core_and_ends(kind: str) -> None:
    with Antagonists((kind,), 2, (CORE,)) as others:
        (program,) = children(os.getpid())
        workers = children(program)
        assert len(workers) == 2
        assert all(os.sched_getaffinity(pid) == {CORE} for pid in workers)
        wait_until(lambda: cpu_ticks(workers) > 20, WAIT_S, "work")
    assert others.work.keys() == {kind}
    assert not any(alive(pid) for pid in {program, *workers})


def test_kinds_take_turns() -> None:
    with Antagonists(("sort", "map"), 2, (CORE,)) as others:
        pass
    assert others.work.keys() == {"sort", "map"}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_they_die_with_whoever_started_them(number: int) -> None:
    program = (
        "import time\nfrom blink.bench.antagonists import Antagonists\n"
        f"with Antagonists(('spawn', 'copy'), 2, ({CORE},)):\n    print('up', flush=True)\n    time.sleep(60)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    started = {pid for pid in tree(owner.pid) if is_antagonist(pid)}
    assert len(started) >= 3
    owner.send_signal(number)
    owner.wait(WAIT_S)
    wait_until(lambda: not any(alive(pid) for pid in started), WAIT_S, "their end")


def test_workers_die_with_their_own_program() -> None:
    with Antagonists(("sort",), 2, (CORE,)):
        (program,) = children(os.getpid())
        workers = children(program)
        assert len(workers) == 2
        os.kill(program, signal.SIGKILL)
        wait_until(lambda: not any(alive(pid) for pid in workers), WAIT_S, "their end")


def test_a_core_that_is_not_there() -> None:
    with pytest.raises(CommandError, match="core 1000 is not to be had"), Antagonists(("sort",), 1, (1000,)):
        pass


@pytest.mark.parametrize(("text", "found"), [("0-3", (0, 1, 2, 3)), ("5", (5,)), ("0,4-5", (0, 4, 5))])
def test_cores(text: str, found: tuple[int, ...]) -> None:
    assert cores(text) == found


@pytest.mark.parametrize("text", ["", "a", "3-1", "1,1", "-2", "1-"])
def test_what_are_no_cores(text: str) -> None:
    with pytest.raises(ValueError, match=r"are no cores|no core, or one twice"):
        cores(text)


def is_antagonist(pid: int) -> bool:
    try:
        return b"blink-antagonist" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def children(pid: int) -> set[int]:
    """Antagonists' processes that this process started itself."""
    found = set()
    for one in tree(pid):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            parent = int(Path(f"/proc/{one}/stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == pid and is_antagonist(one):
                found.add(one)
    return found


def cpu_ticks(pids: set[int]) -> int:
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) + int(one[13]) + int(one[14]) for one in fields)
