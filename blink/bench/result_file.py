"""What a measurement wrote with --json, read again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blink.errors import CommandError
from ringbuffer.model_file import parse_json
from ringbuffer.small_file import read_small_file

MOST_BYTES = 256 << 20
WRONG_SHAPE = (KeyError, IndexError, TypeError, AttributeError, ValueError)


def read_result(path: Path, command: str, is_one: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The result of `command` in the file. Raises CommandError with the file's name."""
    mend = f"give what `{command} --json` wrote"
    try:
        text = read_small_file(path, mend, MOST_BYTES)
    except ValueError as error:
        raise CommandError(str(error)) from error
    try:
        result = parse_json(text)
    except ValueError as error:
        raise CommandError(f"{path} is not valid JSON ({error}): {mend}") from error
    if not isinstance(result, dict) or not is_one(result):
        raise CommandError(f"{path} is no result of `{command} --json`")
    return result


@contextmanager
def whole(*paths: Path) -> Iterator[None]:
    """For whatever uses results. Raises CommandError, with their names, where one lacks a part."""
    try:
        yield
    except WRONG_SHAPE as error:
        names = ", ".join(map(str, paths))
        raise CommandError(f"{names}: the result is not whole, or of another version ({error!r})") from error
