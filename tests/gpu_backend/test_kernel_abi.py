"""The generated views of the kernels' headers are what the compiler makes of these."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: scripts/setup gpu")

from abi_generator.headers import parse_structs, strip_comments
from abi_generator.kernels import KernelHeader, kernel_headers, python_name
from abi_generator.render import camel
from gpu_backend.cuda.compile import compile_templates, source_root

ENGINE = source_root() / "kernels" / "engine.cu"


@pytest.fixture(scope="module")
def headers() -> list[KernelHeader]:
    shared = parse_structs(strip_comments((source_root() / "kernels" / "step.h").read_text()), {})
    return kernel_headers(ENGINE, source_root(), shared)


def checks(header: KernelHeader) -> list[str]:
    """Assertions in C++ that the module generated from `header` is right."""
    module = importlib.import_module(f"gpu_backend.kernel_abi.{header.path.stem}")
    asserted = [
        f'static_assert({name} == {getattr(module, python_name(name))}, "{name}");'
        for name in header.constants
    ]
    for name in header.structs:
        dtype: np.dtype[np.void] = getattr(module, camel(name))
        assert dtype.fields is not None
        asserted.append(f'static_assert(sizeof({name}) == {dtype.itemsize}, "{name}");')
        asserted += [
            f'static_assert(__builtin_offsetof({name}, {member}) == {dtype.fields[member][1]}, "{name}.{member}");'
            f'static_assert(sizeof({name}::{member}) == {dtype.fields[member][0].itemsize}, "{name}.{member}");'
            for member in dtype.names or ()
        ]
    return asserted


@pytest.mark.slow
def test_the_compiler_agrees(
    headers: list[KernelHeader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lines = [line for header in headers for line in checks(header)]
    assert len(lines) > 150
    source = tmp_path / "constants.cu"
    source.write_text("\n".join([f'#include "{ENGINE}"', "namespace blink {", *lines, "}", ""]))
    compile_templates(source, "sm_90a", ["blink::gate_kernel<>"])


def test_a_difference_does_not_compile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    from gpu_backend.cuda.compile import CompileError

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "constants.cu"
    source.write_text(
        f'#include "{ENGINE}"\nnamespace blink {{ static_assert(kSplitPlanThreads == 1, "cut"); }}\n'
    )
    with pytest.raises(CompileError, match="cut"):
        compile_templates(source, "sm_90a", ["blink::gate_kernel<>"])
