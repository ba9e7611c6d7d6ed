"""Instances of kernels are compiled one by one, by several processes, and once for all models."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from limits import COMPILATION_S
from waiting import wait_until

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: scripts/setup gpu")

from blink.bench.cpu_time import tree
from gpu_backend.cuda import compile as compile_cuda
from gpu_backend.cuda import instances
from gpu_backend.cuda.compile import Compilation, CompileError, compile_templates, source_root
from gpu_backend.cuda.instances import compile_instances

SOURCE = 'template <int N> __global__ void fill(int* out) { static_assert(N >= 0, "below"); *out = N; }'
NAMES = [f"fill<{n}>" for n in range(9)]


@pytest.fixture
def source(tmp_path: Path, cache: Path) -> Path:
    path = tmp_path / "fill.cu"
    path.write_text(SOURCE)
    return path


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The instances that this process has compiled."""
    found: list[str] = []
    real = compile_cuda._compile

    def counted(source: Path, options: list[str], names: Sequence[str]) -> Any:
        found.extend(names)
        return real(source, options, names)

    monkeypatch.setattr(compile_cuda, "_compile", counted)
    return found


def test_each_has_a_module_of_its_own(source: Path) -> None:
    found = compile_instances(source, "sm_90a", NAMES[:2])
    assert list(found) == NAMES[:2]
    for name, other in (NAMES[:2], NAMES[1::-1]):
        cubin, symbol = found[name]
        assert symbol.encode() in cubin
        assert found[other][1].encode() not in cubin


def test_what_another_model_has_compiled_is_there(
    source: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "PROCESSES", 1)
    first = compile_instances(source, "sm_90a", NAMES[:3])
    second = compile_instances(source, "sm_90a", NAMES[2:4])
    assert compiled == NAMES[:4]
    assert second[NAMES[2]] == first[NAMES[2]]
    assert compile_instances(source, "sm_90a", NAMES[2:3], {"OTHER": 1}).keys() == {NAMES[2]}
    assert compiled[4:] == NAMES[2:3]


def test_several_processes_compile_what_is_missing(
    source: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave_it_to_the_others(compilation: Compilation, names: Sequence[str]) -> None:
        assert len(tree(os.getpid())) >= 1 + 2
        wait_until(lambda: all(compilation.kept([name]) for name in names), COMPILATION_S, "the others")

    monkeypatch.setattr(instances, "PROCESSES", 3)
    monkeypatch.setattr(instances, "_compile_what_is_free", leave_it_to_the_others)
    assert list(compile_instances(source, "sm_90a", NAMES)) == NAMES
    assert compiled == []


def test_without_the_other_processes_it_only_takes_longer(
    source: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "PROCESSES", 3)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert list(compile_instances(source, "sm_90a", NAMES)) == NAMES
    monkeypatch.setattr(sys, "executable", "/nowhere")
    assert list(compile_instances(source, "sm_90a", NAMES, {"OTHER": 1})) == NAMES
    assert sorted(compiled) == sorted(2 * NAMES)


def test_a_read_only_cache_is_no_error(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))  # no directory can be made below a file
    monkeypatch.setattr(instances, "PROCESSES", 3)
    assert list(compile_instances(source, "sm_90a", NAMES)) == NAMES


def test_a_cache_that_takes_nothing_makes_nobody_compile_twice(
    source: Path, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk that is full."""
    monkeypatch.setattr(compile_cuda, "store", lambda path, entry: False)
    monkeypatch.setattr(instances, "PROCESSES", 1)
    assert list(compile_instances(source, "sm_90a", NAMES)) == NAMES
    assert sorted(compiled) == NAMES


@pytest.mark.parametrize("entry", [b"", b"{}", b"123\ncode", b"{}\ncode", b'{"fill<0>": "f"}\n', b"x\ncode"])
def test_a_damaged_entry_is_none(source: Path, cache: Path, entry: bytes) -> None:
    good = compile_instances(source, "sm_90a", NAMES[:1])
    Compilation(source, "sm_90a").entry(NAMES[:1]).write_bytes(entry)
    assert compile_instances(source, "sm_90a", NAMES[:1]) == good


def test_an_error_is_told_and_leaves_no_process(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instances, "PROCESSES", 3)
    before = tree(os.getpid())
    with pytest.raises(CompileError, match=r"(?s)fill\.cu.*below"):
        compile_instances(source, "sm_90a", ["fill<-1>", *NAMES])
    assert tree(os.getpid()) <= before  # of which some may have ended meanwhile


@pytest.mark.slow
def test_a_module_of_the_engine_has_no_kernel_but_its_own() -> None:
    """Else each would be compiled with every instance."""
    engine = source_root() / "kernels" / "engine.cu"
    cubin, symbols = compile_templates(engine, "sm_90a", ["blink::gate_kernel<>"])
    kernels = set(re.findall(rb"\.text\.(\w+)", cubin))
    assert kernels == {symbols["blink::gate_kernel<>"].encode()}
