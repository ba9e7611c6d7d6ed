"""`blink dynamo` where Dynamo is not installed, or its runtime alone is, which is a package of its own."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from blink import cli
from blink.dynamo.installed import INSTALL

AI_DYNAMO = "pip install --no-deps 'ai-dynamo>="


@pytest.fixture(params=["nothing", "the runtime", "an older version"])
def without_dynamo(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What is installed of Dynamo."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "dynamo" or name in OF_BLINK]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *(path for path in sys.path if not has_dynamo(path))])
    if request.param == "nothing":
        monkeypatch.setitem(sys.modules, "dynamo", None)
    else:
        (tmp_path / "dynamo/runtime").mkdir(parents=True)
        (tmp_path / "dynamo/runtime/__init__.py").touch()
    if request.param == "an older version":
        groups = tmp_path / "dynamo/common/configuration/groups"
        groups.mkdir(parents=True)
        (groups / "runtime_args.py").touch()
    importlib.invalidate_caches()
    return str(request.param)


OF_BLINK = ("blink.dynamo.engine",)  # imports Dynamo's modules when it is imported itself


def has_dynamo(path: str) -> bool:
    return (Path(path) / "dynamo").is_dir()


def test_help_lists_blinks_flags_and_says_how_to_get_dynamos(
    without_dynamo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["dynamo", "--help"])
    assert ended.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "--kv-memory SIZE" in shown
    assert "--connect" in shown
    assert "Dynamo's own flags are missing here" in shown
    assert AI_DYNAMO in shown


def test_a_worker_says_what_to_install(without_dynamo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["dynamo", "demo"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("blink dynamo: error: NVIDIA Dynamo cannot be imported (")
    assert line.endswith(INSTALL)


def test_a_flag_of_dynamos_says_what_to_install(
    without_dynamo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["dynamo", "demo", "--discovery-backend=file"])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "there is no flag --discovery-backend" in line
    assert AI_DYNAMO in line
