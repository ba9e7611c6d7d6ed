"""`--config FILE`: flags in a file, as TOML or YAML. A key is a flag's name without its dashes.

A flag on the command line comes before the file's. The file is read as the flags are: the same names, the
same checks, the same words about what is wrong.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tomllib
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from blink.errors import CommandError
from blink.flags import suggestion
from ringbuffer.model_file import shown
from ringbuffer.small_file import read_small_text

FLAG = "--config"
MODEL = "model"  # the one argument that is no flag
MEND = "write flags without their dashes, such as `port: 8000` in YAML or `port = 8000` in TOML"
TEXTS = (str, int, float, datetime.date, datetime.time)  # what a flag's text can be made of
YAML = (".yaml", ".yml")


def add_config_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        FLAG,
        metavar="FILE",
        action="append",
        help="read flags from a TOML or YAML file, such as `kv-memory: 8GiB`; `model` names the model",
    )


def with_files(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """`words` behind what the files that they name say. Raises CommandError for a file that cannot be."""
    found: list[str] = []
    try:
        for path in _named(words):
            for key, value in _read(path).items():
                found += _word(parser, path, key.replace("_", "-"), value)
    except (CommandError, ValueError) as error:
        raise CommandError(f"{FLAG}: {error}") from error
    return [*found, *words]


def _named(words: Sequence[str]) -> list[Path]:
    given = [word.partition("=")[2] for word in words if word.startswith(f"{FLAG}=")]
    given += [after for word, after in pairwise(words) if word == FLAG]
    return [Path(text).expanduser() for text in given]


def _read(path: Path) -> dict[str, Any]:
    text = read_small_text(path, MEND)
    try:
        value = _parsed_yaml(text) if path.suffix in YAML else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        kind = "YAML" if path.suffix in YAML else "TOML (a YAML file ends in .yaml)"
        raise CommandError(f"{path} is not valid {kind}: {' '.join(str(error).split())}") from error
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise CommandError(f"{path} must hold names and values: {MEND}")
    return value


def _parsed_yaml(text: str) -> Any:
    import yaml  # not at the top: TOML needs no package

    try:
        return yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _word(parser: argparse.ArgumentParser, path: Path, key: str, value: Any) -> list[str]:
    """The flag that `key` and `value` make, checked here so that an error names the file."""
    if key == MODEL:
        _default_model(parser, path, value)
        return []
    actions = parser._option_string_actions
    action = actions.get(f"--{key}")
    if action is None or f"--{key}" in (FLAG, "--help"):
        raise CommandError(f"{path}: there is no flag --{key}{suggestion(f'--{key}', list(actions))}")
    if action.nargs == 0:  # a switch
        if value is not True:
            raise CommandError(f"{path}: {key} is a switch: write true, or leave it out")
        return [f"--{key}"]
    if action.metavar == "JSON" and isinstance(value, dict):
        value = json.dumps(value)
    if not all(isinstance(one, TEXTS) and not isinstance(one, bool) for one in _each(value)):
        raise CommandError(f"{path}: {key} takes a value, found {shown(value)}")
    text = ",".join(map(str, _each(value)))
    try:
        parsed = action.type(text) if callable(action.type) else text
    except argparse.ArgumentTypeError as error:
        raise CommandError(f"{path}: {key}: {error}") from error
    if action.choices is not None and parsed not in action.choices:
        choices = ", ".join(map(str, action.choices))
        raise CommandError(f"{path}: {key}: '{text}' is none of {choices}")
    return [f"--{key}={text}"]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _default_model(parser: argparse.ArgumentParser, path: Path, value: Any) -> None:
    """The model that is served when the command line names none."""
    if not isinstance(value, str):
        raise CommandError(f"{path}: {MODEL} must be a name or a directory, found {shown(value)}")
    for action in parser._actions:
        if action.dest == MODEL and not action.option_strings:
            action.nargs, action.required, action.default = "?", False, value
