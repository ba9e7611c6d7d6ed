"""Tenants as in the paper start where they are told to, are named as what they are, and end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bench import tenants
from bench.tenants import Tenants
from limits import WAIT_S
from process_state import alive
from waiting import wait_until

from blink.bench.cpu_time import Watched, seconds, tree
from blink.errors import CommandError

ROOT = Path(__file__).resolve().parents[2]
CORES = (min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0)))
LITTLE = 1 << 16  # bytes of text a block

pytestmark = pytest.mark.alone


@pytest.fixture(autouse=True)
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenants, "TEXT_BYTES", LITTLE)


def children() -> set[int]:
    return tree(os.getpid()) - {os.getpid()}


def cores_of(pid: int) -> set[int]:
    """None of a process that has ended, as those of a build do all the time."""
    try:
        return os.sched_getaffinity(pid)
    except ProcessLookupError:
        return set()


def test_they_work_on_their_cores_and_end(tmp_path: Path) -> None:
    before = children()
    with Tenants(CORES, tmp_path) as others:
        started = children() - before
        assert len(started) >= 2
        wait_until(lambda: seconds(Watched("tenants", tuple(started))) > 0.5, WAIT_S, "work")
        allowed = set(CORES)
        assert all(cores_of(pid) <= allowed for pid in started)
        last = children() - before
    assert others.result["cpu_s"] > 0.5
    assert others.result["wall_s"] > 0
    assert (others.result["compressor_threads"], others.result["build_jobs"]) == (1, 1)
    wait_until(lambda: not any(alive(pid) for pid in started | last), WAIT_S, "their end")


def test_without_the_papers_programs_others_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with Tenants(CORES, tmp_path) as others:
        pass
    assert others.result["compressor"] == "bz2 of Python, one process a thread"
    assert others.result["build"] == "spawn of blink-antagonist"
    assert others.result["build_work"].keys() == {"spawn"}


def test_the_papers_compressor_is_taken_where_it_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "bin" / "pbzip2"
    program.parent.mkdir()
    seen = tmp_path / "seen"
    program.write_text(f'#!/bin/sh\nhead -c 1000000 | wc -c > {seen}\necho "$@" >> {seen}\ncat > /dev/null\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    with Tenants(CORES, tmp_path) as others:
        wait_until(lambda: seen.exists() and "-c" in seen.read_text(), WAIT_S, "the compressor")
    assert others.result["compressor"] == "pbzip2"
    assert seen.read_text().split() == ["1000000", "-c", "-p1"]  # more than the text has


def test_a_tenant_that_ends_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "ninja"
    program.parent.mkdir()
    told = tmp_path / "pid"
    program.write_text(f"#!/bin/sh\necho no compiler works\necho $$ > {told}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    others = Tenants(CORES, tmp_path).__enter__()
    wait_until(lambda: told.exists() and told.read_text().endswith("\n"), WAIT_S, "the build")
    wait_until(lambda: not alive(int(told.read_text())), WAIT_S, "its end")
    with pytest.raises(CommandError, match=r"a tenant ended while it was needed.*no compiler works"):
        others.__exit__(None, None, None)


def test_a_compiler_builds_the_sources(tmp_path: Path) -> None:
    if not (shutil.which("ninja") and any(map(shutil.which, tenants.COMPILERS))):
        pytest.skip("needs Ninja and a C++ compiler")

    def has_built() -> bool:
        return any("unit0.o" in log.read_text() for log in tmp_path.glob("build-*/.ninja_log"))

    with Tenants(CORES, tmp_path) as others:
        wait_until(has_built, WAIT_S, "the first unit")
    assert others.result["build"].startswith("ninja with ")
    assert not list(tmp_path.glob("build-*"))


def build_with(script: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Ninja that runs this script of a shell."""
    program = directory / "bin" / "ninja"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("is_orphan", [False, True])
def test_a_compiler_in_a_process_group_of_its_own_ends_as_well(
    is_orphan: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "pid"
    tell = f"open('{told}', 'w').write(f'{{os.getpid()}}\\n')"
    compiler = f"import os, time; os.setpgid(0, 0); {tell}; time.sleep(600)"
    command = f'"{sys.executable}" -c "{compiler}"'
    # The shell between them ends at once, and leaves the compiler to another parent.
    build_with(f"({command} &)\nexec sleep 600" if is_orphan else f"{command}\ntrue", tmp_path, monkeypatch)
    with Tenants(CORES, tmp_path):
        wait_until(lambda: told.exists() and told.read_text().endswith("\n"), WAIT_S, "the compiler")
        pid = int(told.read_text())
        assert os.getpgid(pid) == pid
    assert not alive(pid)


def test_what_an_earlier_build_left_disturbs_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build_with("exec sleep 600", tmp_path, monkeypatch)
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)  # as if a compiler still wrote there
    for _ in range(2):
        with Tenants(CORES, tmp_path) as others:
            pass
        assert others.result["build"].startswith("ninja with ")


def test_a_scratch_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"tenants cannot be started: .*No such file"):
        Tenants(CORES, tmp_path / "missing").__enter__()


def test_they_die_with_whoever_started_them(tmp_path: Path) -> None:
    program = (
        f"import sys, time\nsys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'scripts')!r}]\n"
        f"from pathlib import Path\nfrom bench import tenants\ntenants.TEXT_BYTES = {LITTLE}\n"
        f"with tenants.Tenants({CORES}, Path({str(tmp_path)!r})):\n    print('up', flush=True)\n"
        "    time.sleep(600)"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert owner.stdout.readline() == b"up\n"
    started = tree(owner.pid) - {owner.pid}
    assert len(started) >= 2
    owner.send_signal(signal.SIGKILL)
    owner.wait(WAIT_S)
    wait_until(lambda: not any(alive(pid) for pid in started), WAIT_S, "their end")


def test_one_core_is_too_few(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 cores are too few"):
        Tenants((0,), tmp_path)
