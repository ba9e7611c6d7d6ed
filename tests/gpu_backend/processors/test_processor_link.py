"""Logits processors in the sampler's module, compiled and linked for a GPU that need not be here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.cuda.chip import HOPPER, SERVED, arch_of
from gpu_backend.cuda.compile import CompileError
from gpu_backend.engines.native.kernels import compile_with_processors
from gpu_backend.processors.loaded import load
from gpu_backend.processors.numba_code import device_code
from gpu_backend.processors.source import parse_sources

KERNEL = "blink::sample_kernel<blink::LinkedProcessors>"
EXAMPLES = ("no_repeat", "no_repeated_pair", "watermark")
VOCAB = 1000


def test_the_examples_are_linked_into_the_sampler() -> None:
    """Calls are inlined: the module has one function, and of the processors not even a symbol is left."""
    listed = ",".join(f"blink.example_processors:{name}" for name in EXAMPLES)
    processors = load(parse_sources(listed), VOCAB, HOPPER)
    assert processors.names == EXAMPLES
    cubin, symbols = compile_with_processors([KERNEL], "sm_90a", processors.device_codes)
    assert cubin.startswith(b"\x7fELF")
    assert symbols[KERNEL].encode() in cubin
    assert set(re.findall(rb"\.text\.(\w+)", cubin)) == {symbols[KERNEL].encode()}
    assert b"blink_processor_" not in cubin


def other(token, logit, position, recent, args):
    return logit + args[0]


def twice(token, logit, position, recent, args):
    return logit + args[0] + args[0]


@pytest.mark.slow
def test_another_function_makes_another_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    codes = [device_code(function, "blink_processor_0", HOPPER) for function in (other, twice)]
    assert codes[0] != codes[1]
    modules = [compile_with_processors([KERNEL], "sm_90a", [code])[0] for code in codes]
    assert modules[0] != modules[1]
    assert len(list((tmp_path / "blink").iterdir())) == 2


def test_a_function_that_is_missing_is_told_by_the_linker() -> None:
    with pytest.raises(CompileError, match=r"(?s)nvJitLink.*blink_processor_0"):
        compile_with_processors([KERNEL], "sm_90a", [device_code(other, "another_name", HOPPER)])


@pytest.mark.slow
@pytest.mark.parametrize("capability", SERVED)
def test_every_gpu_that_is_served_has_them(capability: tuple[int, int]) -> None:
    code = device_code(other, "blink_processor_0", capability)
    cubin, _ = compile_with_processors([KERNEL], arch_of(capability), [code])
    assert cubin.startswith(b"\x7fELF")
