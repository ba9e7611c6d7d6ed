"""The set-up: its steps are bounded and say what they do, and tests are left with what it could get."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from limits import PROGRAM_S
from needs import ROOT, skip_if_missing
from process_state import alive
from waiting import wait_until

from blink import smollm2

SCRIPTS = ROOT / "scripts"
NO_CONFIGURATION = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}  # but a repository's own


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
    done = run(["bash", "-euc", step], tmp_path, BLINK_STEP_SECONDS="5")
    assert done.returncode == 124
    assert done.stderr == "t: part: stopped, as it took longer than 5 s\n"
    child = int((tmp_path / "log").read_text())
    wait_until(lambda: not alive(child))


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


def test_another_set_up_at_work_does_not_delay_a_test(tmp_path: Path, no_venv: str) -> None:
    command = [SCRIPTS / "with-packages", "vllm-router", "--", "true"]
    run(command, tmp_path, BLINK_PYTHON=no_venv, BLINK_NO_DOWNLOADS="")
    (lock,) = tmp_path.glob("cache/blink/packages/*/lock")
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(command, tmp_path, BLINK_PYTHON=no_venv, BLINK_NO_DOWNLOADS="1")
    assert done.returncode == 77
    assert done.stderr.endswith("cannot run here: creating a virtual environment is for the set-up to do\n")


def test_a_set_up_waits_for_another_for_a_bounded_time(tmp_path: Path, no_venv: str) -> None:
    flock = program(tmp_path / "bin/flock", f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\nexit 1\n').parent
    path = f"{flock}:{os.environ['PATH']}"
    command = [SCRIPTS / "with-packages", "vllm-router", "--", "true"]
    done = run(command, tmp_path, PATH=path, BLINK_PYTHON=no_venv, BLINK_NO_DOWNLOADS="")
    assert done.returncode == 125
    assert re.fullmatch(r"with-packages: another set-up has held .*/lock for 600 s\n", done.stderr)
    assert (tmp_path / "calls").read_text().startswith("--timeout 600 ")


def test_two_set_ups_of_one_user_do_not_share_a_log(tmp_path: Path) -> None:
    """The other one, which ends meanwhile, takes its own away."""
    needs = tmp_path / "cache/blink/needs"
    ends = f'#!/bin/sh\n[ "$1" = --version ] && exit\nrm -f {needs}/*.log\nexit 1\n'
    python = str(program(tmp_path / "python", ends))
    done = run([SCRIPTS / "test-needs", "dockerfile"], tmp_path, BLINK_PYTHON=python, BLINK_NO_DOWNLOADS="")
    assert done.returncode == 77, done.stderr
    assert [path.name for path in needs.iterdir()] == ["dockerfile"]
    assert "creating a virtual environment failed" in (needs / "dockerfile").read_text()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """One whose .venv lacks gguf, and whose set-up only says that it was asked."""
    for name in ("real_model", "packages.sh", "steps.sh"):
        (tmp_path / "scripts").mkdir(exist_ok=True)
        shutil.copy(SCRIPTS / name, tmp_path / "scripts" / name)
    lacks = f'#!/bin/sh\ncase "$*" in *gguf*) exit 1 ;; esac\nexec {sys.executable} "$@"\n'
    program(tmp_path / ".venv/bin/python", lacks)
    program(tmp_path / "scripts/setup", "#!/bin/sh\necho set up >&2\nexit 1\n")
    return tmp_path


@pytest.mark.parametrize("arguments", [[], ["model"]])
def test_a_model_that_is_made_needs_nothing(checkout: Path, arguments: list[str]) -> None:
    made = checkout / (arguments[0] if arguments else "cache/blink/smollm2")
    made.mkdir(parents=True)
    (made / smollm2.ORIGIN).write_text(smollm2._origin())
    done = run([checkout / "scripts/real_model", *arguments], checkout)
    assert (done.returncode, done.stderr) == (0, "")
    assert (checkout / done.stdout.strip()) == made


@pytest.mark.parametrize(
    ("variable", "status", "told"),
    [
        ("1", 77, "real_model: cannot run here: installing gguf is for the set-up to do\n"),
        ("", 1, "set up\n"),
    ],
)
def test_a_model_is_set_up_by_nobody_but_the_set_up(
    checkout: Path, variable: str, status: int, told: str
) -> None:
    done = run([checkout / "scripts/real_model"], checkout, BLINK_NO_DOWNLOADS=variable)
    assert (done.returncode, done.stderr) == (status, told)


def test_a_command_with_a_need_ends_with_whoever_started_it() -> None:
    """It is the process that was started, and no child of it, which a signal would leave behind."""
    command = [SCRIPTS / "test-needs", "dockerfile", "--", "sh", "-c", "echo $$"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.communicate(timeout=PROGRAM_S)
    skip_if_missing("dockerfile", subprocess.CompletedProcess(command, process.returncode, stderr=errors))
    assert output == f"{process.pid}\n"


def test_a_need_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    done = run([SCRIPTS / "test-needs", "nothing"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "there is no nothing" in done.stderr


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A directory with the set-up, whose pip writes down what it is told."""
    directory = tmp_path / "checkout"
    for name in ("scripts/setup", "scripts/steps.sh", "pyproject.toml", "CMakeLists.txt"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, directory / name)
    program(directory / ".venv/bin/pip", '#!/bin/sh\nprintf "%s\\n" "$*" >>calls\n')
    program(directory / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    program(directory / "bin/c++", "#!/bin/sh\n")
    return directory


def set_up(directory: Path, *extras: str) -> None:
    path = f"{directory / 'bin'}:{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
    environment = {"PATH": path, "BLINK_PYTHON": sys.executable, **NO_CONFIGURATION}
    done = run([directory / "scripts/setup", *extras], directory, **environment)
    assert done.returncode == 0, done.stderr
    assert "done (" in done.stderr


@pytest.mark.parametrize(
    ("extras", "wanted"), [([], "."), (["test"], ".[test]"), (["test", "frontend"], ".[frontend,test]")]
)
def test_extras_are_installed_that_are_named(bare: Path, extras: list[str], wanted: str) -> None:
    set_up(bare, *extras)
    assert (bare / "calls").read_text().splitlines()[-1].endswith(f" --editable {wanted}")


def git(directory: Path, *arguments: str) -> str:
    return run(["git", *arguments], directory, **NO_CONFIGURATION).stdout.strip()


def test_commits_in_a_checkout_are_checked(bare: Path) -> None:
    git(bare, "init", "--quiet")
    set_up(bare)
    assert git(bare, "config", "core.hooksPath") == "scripts/hooks"


def test_hooks_that_a_checkout_has_are_kept(bare: Path) -> None:
    git(bare, "init", "--quiet")
    git(bare, "config", "core.hooksPath", "mine")
    set_up(bare)
    assert git(bare, "config", "core.hooksPath") == "mine"
    git(bare, "config", "--unset", "core.hooksPath")
    program(bare / ".git/hooks/pre-push", "#!/bin/sh\n")
    (bare / "CMakeLists.txt").write_text("changed")
    set_up(bare)
    assert git(bare, "config", "core.hooksPath") == ""


def test_a_repository_around_the_set_up_keeps_its_hooks(bare: Path) -> None:
    git(bare.parent, "init", "--quiet")
    set_up(bare)
    assert git(bare.parent, "config", "core.hooksPath") == ""
