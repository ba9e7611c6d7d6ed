"""Every flag that names a file or a directory, found in the commands' own parsers: what cannot be used is
told in one line, with the flag and the file, before anything starts."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from blink import cli
from blink.bench import COMMANDS as BENCH_COMMANDS
from blink.config_file import FLAG as CONFIG
from blink.files import CheckedPath, writable_directory, writable_file

OUTPUTS = (writable_file, writable_directory)
NAMES = [(name,) for name in cli.COMMANDS if name != "bench"] + [("bench", name) for name in BENCH_COMMANDS]


def is_not_utf_8(path: Path) -> None:
    path.write_bytes(b"\xff\xfe")


def is_malformed(path: Path) -> None:
    path.write_text("x")


def is_nested_deeply(path: Path) -> None:
    path.write_text("x = " + "[" * 5000)


def is_too_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: list[Callable[[Path], object]] = [
    Path.unlink, Path.mkdir, Path.touch, os.mkfifo, is_not_utf_8, is_malformed, is_nested_deeply,
    is_too_large,
]  # fmt: skip


def actions_of(command: tuple[str, ...]) -> list[argparse.Action]:
    """Those that take a file or a directory."""
    parser = cli.Parser()
    importlib.import_module(f"blink.{'.'.join(command)}").configure(parser)
    return [action for action in parser._actions if action.metavar in ("FILE", "DIR")]


FLAGS = [(command, action) for command in NAMES for action in actions_of(command) if action.option_strings]
INPUTS = [(command, action) for command, action in FLAGS if getattr(action, "_check", None) not in OUTPUTS]
RESULTS = [(command, action) for command, action in FLAGS if getattr(action, "_check", None) in OUTPUTS]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line that the command ends with."""
    with contextlib.suppress(SystemExit):  # of the parser, which never exits with 0 for an error
        assert cli.main(words) in (1, 2)
    output = capsys.readouterr()
    (line,) = output.err.splitlines()
    assert output.out == ""
    return line


def named(case: object) -> str:
    if isinstance(case, tuple):
        return "-".join([*case[0], case[1].option_strings[0]])
    return getattr(case, "__name__", str(case))


def test_the_flags_are_found_and_each_is_checked() -> None:
    """A new flag of a file needs a `check` (blink/flags.py), and is then covered by the tests below."""
    assert {"--config", "--api-keys", "--tls-cert", "--tls-key", "--ring-key-file", "--json", "--plot"} <= {
        action.option_strings[0] for _, action in FLAGS
    }
    unchecked = [named(flag) for flag in FLAGS if not isinstance(flag[1], CheckedPath)]
    assert all(name.endswith(CONFIG) for name in unchecked), unchecked


@pytest.mark.parametrize("make", KINDS, ids=named)
@pytest.mark.parametrize("flag", INPUTS, ids=named)
def test_a_file_that_cannot_be_used(
    flag: tuple[tuple[str, ...], argparse.Action],
    make: Callable[[Path], object],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command, action = flag
    path = tmp_path / "named"
    if make is Path.unlink:
        path.touch()
    make(path)
    if "key" in action.dest and make is is_nested_deeply:
        path.write_text("short")  # any long text is a key
    if action.dest == "chat_template" and make in (is_malformed, is_nested_deeply):
        path.write_text("{{" + "(" * 5000)  # any text without braces is a template
    line = told(capsys, *command, "demo", f"{action.option_strings[0]}={path}")
    assert line.startswith(f"blink {' '.join(command)}: error: {action.option_strings[0]}: ")
    assert str(path) in line


@pytest.mark.parametrize("flag", RESULTS, ids=named)
def test_where_results_cannot_be_written(
    flag: tuple[tuple[str, ...], argparse.Action], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, action = flag
    file = tmp_path / "file"
    file.touch()
    wrong = [file / "below"]
    wrong += [tmp_path, tmp_path / "none" / "file"] if action.metavar == "FILE" else [file]
    for path in wrong:
        line = told(capsys, *command, "demo", f"{action.option_strings[0]}={path}")
        assert f"error: {action.option_strings[0]}: " in line
        assert str(tmp_path) in line


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100000, "[]", "{}", '{"points": 3}', '{"what": "schedulers"}']
)
@pytest.mark.parametrize("command", ["plot", "timeline"])
def test_results_that_cannot_be_drawn(
    command: str, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs scripts/setup bench")
    path = tmp_path / "result.json"
    path.write_text(text)
    assert str(path) in told(capsys, "bench", command, str(path), f"--out={tmp_path}")


def test_an_aliased_name_is_told_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert "error: --ssl-certfile: cannot read /no/such" in told(
        capsys, "serve", "demo", "--ssl-certfile=/no/such"
    )


def test_a_file_named_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "blink.toml"
    path.write_text("api-keys = '/no/such'")
    assert "error: --api-keys: cannot read /no/such" in told(capsys, "serve", "demo", f"--config={path}")


def test_a_value_that_would_be_endless_when_written_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Aliases let a short YAML file stand for more than a memory holds."""
    path = tmp_path / "blink.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, 20)]
    path.write_text("\n".join(["kv-memory:", *(f"  {line}" for line in lines), "port: *a19"]))
    assert "kv-memory takes a value" in told(capsys, "serve", "demo", f"--config={path}")
    path.write_text(json.dumps({"port": [[1]]}))
    assert "port takes a value" in told(capsys, "serve", "demo", f"--config={path}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "the ring's name is empty"),
        ("/", "/ is a directory"),
        ("x" * 300, "the ring's name has 300 bytes, and may have"),
    ],
)
@pytest.mark.parametrize(
    "command", [("serve", "demo"), ("backend", "demo"), ("frontend", "demo"), ("events",)]
)
def test_a_name_that_no_ring_can_have(
    command: tuple[str, ...], name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"argument --ring: {message}" in told(capsys, *command, f"--ring={name}")
