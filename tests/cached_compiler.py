#!/usr/bin/env python3
"""What CMake starts in place of a compiler (CMAKE_CXX_COMPILER_LAUNCHER), with the compiler's command: takes
objects of the tree's sources from the tests' cache (compilation.py), where they are compiled once."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from compilation import ROOT, cached_object

VALUES = ("-o", "-MT", "-MF")  # of the paths in the build's own folder


def main() -> None:
    command = sys.argv[1:]
    source = Path(command[command.index("-c") + 1]) if "-c" in command else ROOT
    if "-MF" not in command or ROOT not in source.parents:  # it links, or tries the compiler
        os.execvp(command[0], command)
    told = {name: command[command.index(name) + 1] for name in VALUES}
    own = [word for word in command if word not in (*VALUES, *told.values(), "-MD")]
    made = cached_object(source.stem, [word.replace(f"{ROOT}/", "").replace(str(ROOT), ".") for word in own])
    shutil.copyfile(made, told["-o"])
    Path(told["-MF"]).write_text(f"{told['-MT']}: {source}\n")  # the folder is built once


main()
