"""The files of a model directory, which come from elsewhere: read only where they are what they should be.

A file may be a FIFO that nobody writes, or without end; its JSON may nest until the stack is full, or hold an
integer of a million digits, with which arithmetic takes for ever. What honest tools write is read as it is,
above all their large integers: a tokenizer without a longest text has the `model_max_length` int(1e30). So
whoever uses a number says how large it may be.
"""

from __future__ import annotations

import json
import os
import reprlib
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

MAX_CONFIG_BYTES = 16 << 20  # of a configuration, and of a template
MAX_TOKENIZER_BYTES = 256 << 20  # of a tokenizer.json; large ones have some 40 MiB
MAX_DIGITS = 4300  # of an integer: as many as Python reads by itself, in some microseconds
MakeObject = Callable[[list[tuple[str, Any]]], Any]  # from its names and values, in the text's order


class ModelFileError(ValueError):
    """A file cannot be used. One line, which names the file."""


def open_file(path: Path) -> BinaryIO:
    """A regular file, open to be read. Raises FileNotFoundError, ModelFileError."""
    try:
        descriptor = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        )  # a FIFO would wait for a writer
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; a model directory has a {path.name}") from None
    except OSError as error:
        raise ModelFileError(f"{path}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelFileError(f"{path}: not a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file of at most so many bytes. Raises FileNotFoundError, ModelFileError."""
    with open_file(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ModelFileError(f"{path}: larger than {most >> 20} MiB, which no such file is")
    return content


def read_text(path: Path) -> str:
    """A template, without the byte-order mark that some editors write. Raises FileNotFoundError,
    ModelFileError."""
    try:
        return read_bytes(path, MAX_CONFIG_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"{path}: not UTF-8: {error.reason}") from None


def read_json(path: Path, most: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The object in a JSON file. Raises FileNotFoundError, ModelFileError."""
    try:
        value = parse_json(read_bytes(path, most))
    except ModelFileError:
        raise
    except ValueError as error:
        raise ModelFileError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value


def parse_json(text: bytes | str, make_object: MakeObject | None = None) -> Any:
    """Its value, with objects as `make_object` makes them, and integers of at most MAX_DIGITS digits. Raises
    ValueError, which includes what nests too deeply."""
    try:
        return json.loads(text, parse_int=_integer, object_pairs_hook=make_object)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _integer(digits: str) -> int:
    if (length := len(digits.removeprefix("-"))) > MAX_DIGITS:
        raise ValueError(f"an integer of {length} digits; at most {MAX_DIGITS} are read")
    return int(digits)


def whole(value: object) -> int | None:
    """The integer that a value is, which may be written with a fraction of zero, as 8192.0; else None."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def shown(value: object) -> str:
    """A value from such a file as an error tells it: in one short line, whatever it is."""
    return _SHORT.repr(value)


def one_line(text: str, most: int = 500) -> str:
    """What a library says of such a file, which may quote the file, as one printable line of at most `most`
    characters and a mark of what was cut."""
    line = "".join(c if c.isprintable() else " " for c in text[: most + 1])
    return line if len(text) <= most else line[:most] + "..."


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlist = _SHORT.maxdict = 8
_SHORT.maxlevel = 3
