"""The set-up: its steps are bounded and say what they do, and tests are left with what it could get."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from limits import PROGRAM_S
from needs import ROOT, skip_if_missing
from waiting import wait_until

SCRIPTS = ROOT / "scripts"


def run(command: list[str | Path], directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """With a cache of its own."""
    own = {**os.environ, "XDG_CACHE_HOME": str(directory / "cache"), **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, env=own, cwd=directory)


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def no_venv(tmp_path: Path) -> str:
    """A Python that makes no virtual environment, as where packages cannot be had."""
    return str(
        program(tmp_path / "python", '#!/bin/sh\n[ "$1" = --version ] && exit\necho no index >&2\nexit 1\n')
    )


@pytest.mark.parametrize(
    ("command", "status", "told"),
    [("echo aside", 0, "t: part: done ("), ("exit 3", 3, "t: part: failed with status 3")],
)
def test_a_step_says_how_it_ended(tmp_path: Path, command: str, status: int, told: str) -> None:
    step = f"program=t log=log; . {SCRIPTS}/steps.sh; step part sh -c '{command}'"
    done = run(["bash", "-euc", step], tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(told)
    assert (tmp_path / "log").read_text() == ("aside\n" if status == 0 else "")


def test_a_step_that_takes_too_long_is_stopped_with_all_that_it_started(tmp_path: Path) -> None:
    step = f"program=t log=log; . {SCRIPTS}/steps.sh; step part sh -c 'sleep 300 & echo $!; sleep 300'"
    done = run(["bash", "-euc", step], tmp_path, BLINK_STEP_SECONDS="1")
    assert done.returncode == 124
    assert done.stderr == "t: part: stopped, as it took longer than 1 s\n"
    child = Path("/proc", (tmp_path / "log").read_text().strip())
    wait_until(lambda: not child.exists() or "\nState:\tZ" in (child / "status").read_text())


def test_a_test_downloads_nothing(tmp_path: Path) -> None:
    done = run([SCRIPTS / "with-packages", "vllm-router", "--", "true"], tmp_path, BLINK_NO_DOWNLOADS="1")
    assert done.returncode == 77
    assert done.stderr.endswith("cannot run here: creating a virtual environment is for the set-up to do\n")
    assert not list(tmp_path.glob("cache/blink/packages/*/venv"))


def test_what_could_not_be_had_is_known_to_the_tests_that_need_it(
    tmp_path: Path, no_venv: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"BLINK_PYTHON": no_venv, "BLINK_NO_DOWNLOADS": ""}
    done = run([SCRIPTS / "test-needs", "dockerfile"], tmp_path, **environment)
    assert done.returncode == 77
    assert "test-needs: tests that need dockerfile will be skipped" in done.stderr
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (log,) = tmp_path.glob("cache/blink/packages/*/setup.log")
    assert log.read_text() == "no index\n"
    with pytest.raises(pytest.skip.Exception) as skipped:
        skip_if_missing("dockerfile", run([SCRIPTS / "test-needs", "dockerfile", "--", "true"], tmp_path))
    assert str(skipped.value) == (
        f"with-packages: cannot run here: creating a virtual environment failed, see {log} "
        "(to repeat the set-up: scripts/test-needs dockerfile)"
    )
    skip_if_missing("dockerfile", subprocess.CompletedProcess([], 0))


def test_a_need_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = run([SCRIPTS / "test-needs", "nothing"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no nothing" in done.stderr


@pytest.mark.parametrize(
    ("extras", "wanted"), [([], "."), (["test"], ".[test]"), (["test", "frontend"], ".[frontend,test]")]
)
def test_extras_are_installed_that_are_named(tmp_path: Path, extras: list[str], wanted: str) -> None:
    """In a checkout whose pip writes down what it is told."""
    for name in ("scripts/setup", "scripts/steps.sh", "pyproject.toml", "CMakeLists.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    program(tmp_path / ".venv/bin/pip", '#!/bin/sh\nprintf "%s\\n" "$*" >>calls\n')
    program(tmp_path / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    compiler = program(tmp_path / "bin/c++", "#!/bin/sh\n").parent
    path = f"{compiler}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    done = run([tmp_path / "scripts/setup", *extras], tmp_path, PATH=path, BLINK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "calls").read_text().splitlines()[-1].endswith(f" --editable {wanted}")
    assert "done (" in done.stderr
