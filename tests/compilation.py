"""C and C++ programs for the tests, compiled once for everyone who shares the project's cache directory.

An object is looked up by the contents of what its compilation reads: the compiler, the flags, the source,
and every header that it includes, which the compiler lists (-MD). So an edited header costs only the objects
that include it; and a fresh clone, another worktree and several processes at once share what one of them has
compiled. One case goes unseen: a new header that takes the place of one further down the include path.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

from limits import COMPILATION_S
from waiting import wait_until

from gpu_backend.cuda.cache import cache_directory

ROOT = Path(__file__).resolve().parent.parent
CACHE = cache_directory() / "tests"
COMPILERS = {".c": ("gcc", []), ".cpp": ("g++", ["-std=c++17"])}
CUBINS = 5000  # of the tests' kernels that stay in the cache, some 150 KB each
UNUSED_S = 14 * 24 * 3600  # a program or an object that nobody has used for so long is removed


def build(name: str, sources: Sequence[str | Path], *flags: str) -> Path:
    """The path of a program, or with the flag -shared of a library, whose file is called `name`.

    Sources are C (.c), C++ (.cpp), or libraries to link with; relative paths, also those of -I, are from the
    tree's root. The flags go to the compiler and to the linker. The test is skipped where there is no
    compiler, and fails with the compiler's messages where the sources do not compile.
    """
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        inputs = list(pool.map(lambda path: as_input(ROOT / path, flags), sources))
    command = [compiler("g++"), *flags, "-pthread", *map(str, inputs)]
    with locked(CACHE / f"{name}-{digest([*command, version(command[0])])}") as entry:
        return used(entry / name) or made(entry / name, command)


def as_input(path: Path, flags: Sequence[str]) -> Path:
    """What the linker reads: the object of a source, or the library itself."""
    return compiled(path, flags) if path.suffix in COMPILERS else path


def compiled(source: Path, flags: Sequence[str]) -> Path:
    """The object of one source, which is compiled if the cache has none of the same contents."""
    name, usual = COMPILERS[source.suffix]
    # What a sanitizer says has lines of the source. Without it their names take a third of the time.
    lines = "-g" if any(flag.startswith("-fsanitize") for flag in flags) else "-g0"
    common = [*usual, lines, "-Wall", "-Wextra", "-pthread", "-I."]
    return cached_object(source.stem, [compiler(name), *common, *flags, "-c", str(relative(source))])


def cached_object(name: str, command: Sequence[str]) -> Path:
    """What the command makes, which runs in the tree's root and does not say where its output goes."""
    with locked(CACHE / f"{name}.o-{digest([*command, version(command[0])])}") as entry:
        for listing in entry.glob("*.files"):  # several where a change has added an include
            if found := used(entry / f"{contents(listing.read_text().splitlines())}.o"):
                os.utime(listing)
                return found
        return compile_into(entry, command)


def relative(source: Path) -> Path:
    """From the tree's root, so that clones share objects; a source from elsewhere stays as it is."""
    return source.relative_to(ROOT) if source.is_relative_to(ROOT) else source


def compile_into(entry: Path, command: Sequence[str]) -> Path:
    began = time.time()
    with tempfile.TemporaryDirectory(dir=entry) as folder:
        rule = Path(folder) / "rule"
        unnamed = made(Path(folder) / "object.o", [*command, "-MD", "-MF", str(rule)])
        files = dependencies(rule.read_text())
        # What the compiler has read is known only if nothing has changed meanwhile.
        edited = [file for file in files if (ROOT / file).stat().st_mtime > began]
        assert not edited, f"edited while they were compiled, run the tests again: {', '.join(edited)}"
        target = unnamed.replace(entry / f"{contents(files)}.o")
        listing = Path(folder) / "files"
        listing.write_text("\n".join(files))
        listing.replace(entry / f"{digest(files)}.files")
        return target


def made(target: Path, command: Sequence[str]) -> Path:
    """Runs a compiler or linker. The target gets its name when it is whole."""
    partial = target.with_name(f"{target.name}.partial")
    done = subprocess.run(
        [*command, "-o", str(partial)], cwd=ROOT, capture_output=True, text=True, timeout=COMPILATION_S
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return partial.replace(target)


@contextlib.contextmanager
def locked(entry: Path) -> Iterator[Path]:
    """A directory of the cache, held by one thread of one process at a time."""
    entry.mkdir(parents=True, exist_ok=True)
    with (entry / "lock").open("w") as lock:
        wait_until(lambda: takes(lock), COMPILATION_S, f"the lock of {entry}")
        yield entry


def takes(lock: IO[str]) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def used(path: Path) -> Path | None:
    """The path, if the file is there; its time then says that it is of use."""
    try:
        os.utime(path)
    except FileNotFoundError:
        return None
    return path


def remove_unused() -> None:
    for entry in CACHE.glob("*/"):
        with contextlib.suppress(OSError):  # another run removes it, too
            files = [entry, *entry.iterdir()]  # itself too: another run may just have made it
            if all(time.time() - file.stat().st_mtime > UNUSED_S for file in files):
                shutil.rmtree(entry)


def dependencies(rule: str) -> list[str]:
    """The files of a rule for make, `target: file file \\`, as the compiler writes it."""
    words = rule.partition(": ")[2].replace("\\\n", " ").replace("\\ ", "\0").split()
    return [word.replace("\0", " ") for word in words]


def contents(files: Iterable[str]) -> str:
    return digest(line for file in files for line in (file, file_digest(ROOT / file)))


def file_digest(path: Path) -> str:
    """Empty for a file that is gone, which no compilation has read."""
    try:
        return known_digest(path, path.stat().st_mtime_ns)
    except FileNotFoundError:
        return ""


@functools.cache
def known_digest(path: Path, changed_ns: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def digest(words: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:24]


@functools.cache
def compiler(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        import pytest  # not at the top: cached_compiler.py is started for each source

        pytest.skip(f"needs {name}")
    return path


@functools.cache
def version(compiler_path: str) -> str:
    asked = [compiler_path, "--version"]
    return subprocess.run(asked, capture_output=True, text=True, check=True, timeout=COMPILATION_S).stdout
