"""scripts/abi_generator: how headers are read.

That the compiler reads the kernels' headers in the same way is shown by tests/gpu_backend/test_kernel_abi.py.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
from abi_generator.expressions import Names, Template, Unknown, evaluate
from abi_generator.headers import parse_constants, parse_struct, parse_structs
from abi_generator.kernels import kernel_headers, preprocessed, python_name
from abi_generator.render import render_ctypes

NAMES: Names = {
    "kWarps": 8,
    "kThreads": "32 * kWarps",
    "kDepth": Template(("Groups",), "Groups == 1 ? 8 : kWarps / 2"),
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("1u << 25", 1 << 25),
        ("0xffffffffu", 0xFFFFFFFF),
        ("kThreads + 128", 384),
        ("3 * (kWarps - 1) / 2", 10),
        ("2 + 3 * 4 % 5", 4),
        ("sizeof(float4) * 128", 2048),
        ("kWarps * kDepth<1> * 32", 2048),
        ("kDepth<2>", 4),
        ("kWarps > 4 ? 64 : kWarps > 2 ? 4 : 2", 64),
    ],
)
def test_expressions_are_those_of_cpp(expression: str, value: int) -> None:
    assert evaluate(expression, NAMES) == value


@pytest.mark.parametrize("expression", ["kElsewhere + 1", "sizeof(Shared)", "min(1, 2)", "2.5f"])
def test_what_is_no_integer_constant_is_refused(expression: str) -> None:
    with pytest.raises(Unknown):
        evaluate(expression, NAMES)


def test_names_in_python() -> None:
    assert [python_name(name) for name in ("kSplitPlanThreads", "kGroupedK", "kMaxSplits")] == [
        "SPLIT_PLAN_THREADS",
        "GROUPED_K",
        "MAX_SPLITS",
    ]


def test_only_what_the_gpu_compiles_is_read() -> None:
    host = "#if defined(__AVX512F__)\nwide\n#elif defined(__AVX__)\nless\n#else\nnarrow\n#endif"
    nested = f"#ifndef __CUDACC__\nhost\n{host}\n#else\ngpu\n#endif"
    chain = "#ifdef __CUDACC__\nfirst\n#elif BLINK\nsecond\n#else\nthird\n#endif"
    assert preprocessed(f"{nested}\n{chain}\nboth").split() == ["gpu", "first", "both"]
    assert preprocessed(host).split() == ["narrow"]


def test_a_struct_is_laid_out_as_a_compiler_does() -> None:
    body = " const float *first, *second; uint32_t n; uint64_t far; uint32_t get() const { return n; } "
    struct = parse_struct("Cut", "32", body, {})
    assert [(f.name, f.offset, f.size) for f in struct.fields] == [
        ("first", 0, 8),
        ("second", 8, 8),
        ("n", 16, 4),
        ("far", 24, 8),
    ]
    assert (struct.align, struct.size) == (32, 32)


def test_ctypes_lays_a_generated_structure_out_as_the_header_says() -> None:
    """Members with padding in front of one and behind the last, and an array whose length is a constant."""
    members = "uint8_t kind; uint64_t far; uint32_t numbers[BLINK_PAIRS];"
    text = f"#define BLINK_PAIRS 3u\nstruct blink_peer {{ {members} }};"
    (struct,) = (structs := parse_structs(text, {})).values()
    namespace: dict[str, Any] = {}
    exec(render_ctypes(["peer.h"], structs, {}, parse_constants(text)), namespace)
    peer = namespace["Peer"]
    assert namespace["PAIRS"] == 3
    assert ctypes.sizeof(peer) == struct.size == 32
    assert [(f.name, f.offset) for f in struct.fields] == [
        (name, getattr(peer, name).offset) for name, _ in peer._fields_
    ]


def test_constants_may_need_those_of_another_header(tmp_path: Path) -> None:
    (tmp_path / "base.h").write_text(
        "namespace blink {\nconstexpr uint32_t kWarps = 8, kThreads = 32 * kWarps;\n}\n"
    )
    (tmp_path / "op.h").write_text(
        '#include "base.h"\nconstexpr uint32_t kBlock = kThreads + 32; /* and a copier */\n'
        "struct Other {\n  static constexpr uint32_t kInner = 1;\n};\n"
    )
    (tmp_path / "engine.cu").write_text('#include "op.h"\n')
    headers = kernel_headers(tmp_path / "engine.cu", tmp_path, {})
    assert [(header.path.name, header.constants) for header in headers] == [
        ("base.h", {"kWarps": 8, "kThreads": 256}),
        ("op.h", {"kBlock": 288}),
    ]


def test_a_constant_has_one_definition(tmp_path: Path) -> None:
    (tmp_path / "base.h").write_text("constexpr uint32_t kWarps = 8;\n")
    (tmp_path / "op.h").write_text('#include "base.h"\nconstexpr uint32_t kWarps = 4;\n')
    (tmp_path / "engine.cu").write_text('#include "op.h"\n')
    with pytest.raises(SystemExit, match=r"op\.h defines kWarps a second time"):
        kernel_headers(tmp_path / "engine.cu", tmp_path, {})
