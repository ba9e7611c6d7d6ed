"""Files and directories that flags name: looked at when the command line is read, before anything starts."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from blink.errors import CommandError

Check = Callable[[Path], object]  # raises ValueError or OSError where the path is not what the flag needs


class CheckedPath(argparse.Action):
    """Stores the path, or each of several, that `check` has accepted. Raises CommandError, which names the
    flag as it was written."""

    def __init__(self, option_strings: Sequence[str], dest: str, *, check: Check, **keywords: Any) -> None:
        super().__init__(option_strings, dest, type=path, **keywords)
        self._check = check

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        for one in values if isinstance(values, Sequence) else (values,):
            try:
                self._check(one)
            except (OSError, ValueError) as error:
                raise CommandError(f"{option_string or self.metavar}: {error}") from error
        setattr(namespace, self.dest, values)


def path(text: str) -> Path:
    """With the home directory for `~`, which a shell leaves in `--flag=~/file`. Raises ArgumentTypeError."""
    if not text:
        raise argparse.ArgumentTypeError("the name of a file is missing")
    return Path(text).expanduser()


def writable_file(file: Path) -> None:
    """Raises ValueError where a command could not write its results to `file` when it has them."""
    if file.is_dir():
        raise ValueError(f"{file} is a directory: give the name of a file")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"there is no directory {file.absolute().parent}")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise ValueError(f"{file} cannot be written by this user: give another name")


def writable_directory(directory: Path) -> None:
    """Raises ValueError where `directory` is not one that can be written, and cannot be made."""
    above = directory.absolute()
    while not above.exists():
        above = above.parent
    if not above.is_dir():
        raise ValueError(f"{above} is a file: give the name of a directory")
    if not os.access(above, os.W_OK | os.X_OK):
        raise ValueError(f"{above} cannot be written by this user: give another directory")
