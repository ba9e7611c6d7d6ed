"""Compresses a file again and again: by bz2 of Python, as one thread of a compressor like pbzip2, or by
COMMAND, to whose input the file is written without end. COMMAND ends with this program, as its input does.
"""

from __future__ import annotations

import argparse
import bz2
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

BLOCK = 900_000  # bytes, as of pbzip2 and of bzip2 -9


def blocks(path: Path) -> Iterator[bytes]:
    """Without end."""
    data = path.read_bytes()
    for _ in itertools.count():
        for at in range(0, len(data), BLOCK):
            yield data[at : at + BLOCK]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    arguments = parser.parse_args()
    if not arguments.command:
        for block in blocks(arguments.file):
            bz2.compress(block, 9)
    compressor = subprocess.Popen(arguments.command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert compressor.stdin is not None
    for block in blocks(arguments.file):
        compressor.stdin.write(block)


if __name__ == "__main__":
    main()
