"""Test programs are compiled when what they are made of has changed, and only then."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import compilation
import pytest
from compilation import build

SOURCES = ["main.cpp", "other.cpp"]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sources, one of which includes a header, and a cache that holds nothing yet."""
    monkeypatch.setattr(compilation, "ROOT", tmp_path / "tree")
    monkeypatch.setattr(compilation, "CACHE", tmp_path / "cache")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/value.h").write_text("constexpr int kValue = 3;\n")
    (tmp_path / "tree/main.cpp").write_text(
        '#include "value.h"\nint other();\nint main() { return kValue + other(); }\n'
    )
    (tmp_path / "tree/other.cpp").write_text("int other() { return 40; }\n")
    return tmp_path / "tree"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that were given to a compiler, in order."""
    sources: list[str] = []
    real = compilation.compile_into

    def noted(entry: Path, command: list[str]) -> Path:
        sources.append(command[-1])
        return real(entry, command)

    monkeypatch.setattr(compilation, "compile_into", noted)
    return sources


def result(program: Path) -> int:
    return subprocess.run([program], timeout=60).returncode


def test_an_edited_header_costs_the_sources_that_include_it(tree: Path, compiled: list[str]) -> None:
    assert result(build("sum", SOURCES)) == 43
    assert sorted(compiled) == SOURCES
    (tree / "value.h").write_text("constexpr int kValue = 5;\n")
    assert result(build("sum", SOURCES)) == 45
    assert sorted(compiled) == ["main.cpp", "main.cpp", "other.cpp"]


def test_what_was_built_before_is_found(tree: Path, compiled: list[str]) -> None:
    first = build("sum", SOURCES)
    (tree / "value.h").write_text("constexpr int kValue = 5;\n")
    assert build("sum", SOURCES) != first
    (tree / "value.h").write_text("constexpr int kValue = 3;\n")
    assert build("sum", SOURCES) == first
    assert len(compiled) == 3


def test_flags_make_another_program(tree: Path, compiled: list[str]) -> None:
    assert build("sum", SOURCES) != build("sum", SOURCES, "-O2")
    assert len(compiled) == 4


def test_several_who_want_the_same_compile_it_once(tree: Path, compiled: list[str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        programs = set(pool.map(lambda _: build("sum", SOURCES), range(4)))
    assert [result(program) for program in programs] == [43]
    assert sorted(compiled) == SOURCES


def test_what_does_not_compile_says_why(tree: Path) -> None:
    (tree / "other.cpp").write_text("int other() { return nothing; }\n")
    for _ in range(2):  # nothing of it stays in the cache
        with pytest.raises(AssertionError, match="nothing"):
            build("sum", SOURCES)


def test_an_edit_during_the_compilation_is_not_taken_for_what_was_compiled(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Path] = compilation.made

    def edited(target: Path, command: list[str]) -> Path:
        done = real(target, command)
        later = time.time() + 1
        os.utime(tree / "value.h", (later, later))
        return done

    monkeypatch.setattr(compilation, "made", edited)
    with pytest.raises(AssertionError, match=r"edited while they were compiled, .*: value\.h"):
        build("sum", SOURCES)


def test_what_nobody_uses_is_removed(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = build("sum", SOURCES)
    compilation.remove_unused()
    assert program.exists()
    monkeypatch.setattr(compilation, "UNUSED_S", -1.0)
    compilation.remove_unused()
    assert not program.exists()
