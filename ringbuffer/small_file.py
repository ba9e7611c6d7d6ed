"""Files that people write by hand and name on a command line: settings, keys, certificates."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from ringbuffer.model_file import ModelFileError, read_bytes

MOST_BYTES = 1 << 20


def read_small_file(path: Path, mend: str, most: int = MOST_BYTES) -> bytes:
    """What is in the file: something beside white space, and at most so many bytes.

    Raises ValueError with one line, which names the file and ends with `mend`, what to give instead. Nothing
    is waited for: a FIFO or a device, which may never end, is refused.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a directory: {mend}")
    try:
        content = read_bytes(path, most)
    except FileNotFoundError as error:
        raise ValueError(f"cannot read {path}: {os.strerror(errno.ENOENT)}; {mend}") from error
    except ModelFileError as error:
        raise ValueError(f"{error}; {mend}") from error
    if not content.strip():
        raise ValueError(f"{path} is empty: {mend}")
    return content


def read_small_text(path: Path, mend: str) -> str:
    """The same of a file that is to be text. Raises ValueError also where it is not UTF-8."""
    content = read_small_file(path, mend)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path} is not text in UTF-8, from line {line} on: {mend}") from error
