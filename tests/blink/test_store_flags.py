"""The flags of stored responses and of sealed reasoning: what is refused before anything starts."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from blink import cli, frontend, serve
from nic_frontend.options import FrontendOptions
from nic_frontend.store.seal_key import VARIABLE


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[FrontendOptions]:
    """What a frontend would have served with."""
    found: list[FrontendOptions] = []
    monkeypatch.setattr("nic_frontend.server.serve", lambda options, *_: found.append(options))
    return found


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with contextlib.suppress(SystemExit):  # of the parser
        assert cli.main(["frontend", "demo", *words]) in (1, 2)
    return capsys.readouterr().err


def test_a_frontend_gets_them(served: list[FrontendOptions], tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef\n")
    words = ["--store-responses", str(tmp_path / "responses"), "--store-size=2GiB", "--response-age=0.5"]
    assert cli.main(["frontend", "demo", *words, "--seal-key-file", str(tmp_path / "key")]) == 0
    (options,) = served
    assert (options.store_responses, options.seal_key_file) == (tmp_path / "responses", tmp_path / "key")
    assert (options.store_bytes, options.response_age_days) == (2 << 30, 0.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--store-size=16MiB", "--store-responses={tmp}/responses"), "--store-size 16 MiB is too little"),
        (("--store-size=2GiB",), "--store-size needs --store-responses FILE"),
        (("--store-size=8",), "write a unit"),
        (("--response-age=0",), "0 is not a time in days"),
        (("--response-age=nan",), "nan is not a time in days"),
        (("--response-age=x",), "x is not a time in days"),
    ],
)
def test_what_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    assert message in told(capsys, *(word.format(tmp=tmp_path) for word in words))


def test_large_bodies_need_no_store(served: list[FrontendOptions]) -> None:
    assert cli.main(["frontend", "demo", "--max-body=900MiB"]) == 0
    assert served[0].store_responses is None


def test_files_that_are_no_store(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch(0o644)
    line = told(capsys, "--store-responses", str(path))
    assert f"error: --store-responses: {path} is no file of this user's alone" in line


def test_keys_that_are_too_short(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("short")
    assert "error: --seal-key-file: the key in" in told(capsys, "--seal-key-file", str(path))
    monkeypatch.setenv(VARIABLE, "short")
    assert f"the key in ${VARIABLE} has 5 bytes" in told(capsys)


def test_all_frontends_of_a_server_have_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = cli.build_parser("serve").parse_args(["serve", "demo", "--port=0"])
    for given in ("", None):
        monkeypatch.delenv(VARIABLE, raising=False)
        if given is not None:
            monkeypatch.setenv(VARIABLE, given)
        keys = [serve.supervisor_options(namespace, "demo", 1).environment[VARIABLE] for _ in range(2)]
        assert len(set(keys)) == 2, "each server has its own"
        assert all(len(key) == 64 for key in keys)
    monkeypatch.setenv(VARIABLE, "0123456789abcdef")
    assert serve.supervisor_options(namespace, "demo", 1).environment[VARIABLE] == "0123456789abcdef"
    assert frontend.values(namespace)["seal_key"] == b"0123456789abcdef"
