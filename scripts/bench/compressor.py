"""Compresses a file block by block with bz2, again and again: one thread of a compressor like pbzip2."""

from __future__ import annotations

import argparse
import bz2
from pathlib import Path

BLOCK = 900_000  # bytes, as of pbzip2 and of bzip2 -9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE")
    path: Path = parser.parse_args().file
    while True:
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                bz2.compress(block, 9)


if __name__ == "__main__":
    main()
