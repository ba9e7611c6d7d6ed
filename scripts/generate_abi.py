#!/usr/bin/env python3
"""Generates the Python view and the layout assertions of the C headers that two languages share.

For each header: NAME_layout.h (a hash of the layout, a static_assert on every field's offset, and the table that
the compiled library exports so that tests can compare) and an abi.py (constants, IntEnums, numpy dtypes). The
outputs are checked in; `--check` exits 1 when they differ from what the headers say.

The headers keep to a subset of C: `#define NAME literal`, `enum name { A = literal, ... }`, and structs whose
members are fixed-width scalars, pointers, one-dimensional arrays of those, or earlier structs.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SCALARS = {
    "uint8_t": "u1",
    "int32_t": "<i4",
    "uint32_t": "<u4",
    "int64_t": "<i8",
    "uint64_t": "<u8",
    "float": "<f4",
}
TARGETS = [
    ("ringbuffer/ring.h", "ringbuffer/ring_layout.h", "ringbuffer/abi.py", "ring"),
    ("kernels/step.h", "kernels/step_layout.h", "gpu_backend/abi.py", "step"),
    (
        "kernels/scheduler/state.h",
        "kernels/scheduler/state_layout.h",
        "gpu_backend/scheduler_abi.py",
        "scheduler",
    ),
    ("kernels/model.h", "kernels/model_layout.h", "gpu_backend/models/abi.py", "model"),
    (
        "kernels/decoder/arguments.h",
        "kernels/decoder/arguments_layout.h",
        "gpu_backend/decoder_abi.py",
        "decoder",
    ),
]


@dataclass
class Field:
    name: str
    dtype: str
    size: int
    align: int
    count: int
    offset: int = 0


@dataclass
class Struct:
    name: str
    fields: list[Field] = field(default_factory=list)
    size: int = 0
    align: int = 1


def strip_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)


def parse_constants(text: str) -> dict[str, str]:
    found = re.findall(r"^#define\s+(BLINK_\w+)[ \t]+(0x[0-9a-fA-F]+|\d+)u?l?l?[ \t]*$", text, flags=re.M)
    return dict(found)


def parse_enums(text: str) -> dict[str, list[tuple[str, str]]]:
    return {
        name: re.findall(r"(BLINK_\w+)\s*=\s*(\d+)", body)
        for name, body in re.findall(r"enum\s+(\w+)\s*\{(.*?)\}", text, flags=re.S)
    }


def parse_field(line: str, structs: dict[str, Struct]) -> Field:
    match = re.fullmatch(r"(?:const\s+)?(?:struct\s+)?(\w+)\s*(\*?)\s*(\w+)(?:\[(\d+)\])?", line)
    if not match:
        raise SystemExit(f"generate_abi: cannot parse the member '{line}'")
    type_name, pointer, name, count = match.groups()
    repeat = int(count or 1)
    if pointer:
        return Field(name, "<u8", 8, 8, repeat)
    if type_name in SCALARS:
        size = int(SCALARS[type_name][-1])
        return Field(name, SCALARS[type_name], size, size, repeat)
    if type_name in structs:
        return Field(name, type_name, structs[type_name].size, structs[type_name].align, repeat)
    raise SystemExit(f"generate_abi: unknown type '{type_name}' of '{name}'")


def parse_structs(text: str, known: dict[str, Struct]) -> dict[str, Struct]:
    """The structs defined in `text`; members may be of `known` structs, defined in an earlier header."""
    structs: dict[str, Struct] = {}
    for name, body in re.findall(r"struct\s+(\w+)\s*\{(.*?)\}\s*;", text, flags=re.S):
        struct = Struct(name)
        offset = 0
        for line in filter(None, (part.strip() for part in body.split(";"))):
            item = parse_field(" ".join(line.split()), known | structs)
            offset = -(-offset // item.align) * item.align
            item.offset = offset
            offset += item.size * item.count
            struct.align = max(struct.align, item.align)
            struct.fields.append(item)
        struct.size = -(-offset // struct.align) * struct.align
        structs[name] = struct
    return structs


def layout_hash(
    structs: dict[str, Struct], enums: dict[str, list[tuple[str, str]]], constants: dict[str, str]
) -> int:
    """FNV-1a, 64 bits, over a canonical text of everything that two builds must agree on."""
    lines = [f"{s.name}.{f.name} {f.dtype} {f.count} {f.offset}" for s in structs.values() for f in s.fields]
    lines += [f"{name} {value}" for values in enums.values() for name, value in values]
    lines += [f"{name} {value}" for name, value in constants.items()]
    value = 0xCBF29CE484222325
    for byte in "\n".join(lines).encode():
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.removeprefix("blink_").split("_"))


def common_prefix(names: list[str]) -> str:
    """The longest run of whole words that every member starts with: 'BLINK_STATE_'."""
    words = [name.split("_") for name in names]
    shared = 2 if len(words) == 1 else 0
    while len(words) > 1 and all(len(w) > shared + 1 and w[shared] == words[0][shared] for w in words):
        shared += 1
    return "_".join(words[0][:shared]) + "_"


def render_c(stem: str, header: str, structs: dict[str, Struct], digest: int) -> str:
    out = [f"/* Generated from {Path(header).name} by scripts/generate_abi.py. Do not edit. */"]
    out += ["// clang-format off", f"#define BLINK_{stem.upper()}_LAYOUT_HASH 0x{digest:016x}ull", ""]
    out += [
        "#ifdef __cplusplus",
        "#define BLINK_ASSERT static_assert",
        "#else",
        "#define BLINK_ASSERT _Static_assert",
        "#endif",
    ]
    for s in structs.values():
        out.append(f'BLINK_ASSERT(sizeof(struct {s.name}) == {s.size}, "{s.name}");')
        out += [
            f'BLINK_ASSERT(__builtin_offsetof(struct {s.name}, {f.name}) == {f.offset}, "{s.name}.{f.name}");'
            for f in s.fields
        ]
    out += ["#undef BLINK_ASSERT", "", "/* X(struct, member) for every member, in order. */"]
    rows = [f"  X({s.name}, {f.name})" for s in structs.values() for f in s.fields]
    out += [f"#define BLINK_{stem.upper()}_MEMBERS(X) \\", " \\\n".join(rows), "// clang-format on", ""]
    return "\n".join(out)


def render_python(
    stem: str,
    header: str,
    structs: dict[str, Struct],
    enums: dict[str, list[tuple[str, str]]],
    constants: dict[str, str],
    digest: int,
    imports: list[str],
) -> str:
    out = [f'"""Generated from {header} by scripts/generate_abi.py. Do not edit."""', "", "# fmt: off"]
    out += ["from enum import IntEnum"] * bool(enums) + ["", "import numpy as np", "", *imports, ""]
    out += [f"{name.removeprefix('BLINK_')} = {value}" for name, value in constants.items()]
    out += [f"{stem.upper()}_LAYOUT_HASH = 0x{digest:016x}", ""]
    for name, values in enums.items():
        prefix = common_prefix([n for n, _ in values])
        out += ["", f"class {camel(name)}(IntEnum):"]
        out += [f"    {n.removeprefix(prefix)} = {v}" for n, v in values]
        out.append("")
    for s in structs.values():
        formats = [f"{camel(f.dtype)}" if f.dtype.startswith("blink_") else f'"{f.dtype}"' for f in s.fields]
        formats = [
            f"({fmt}, ({f.count},))" if f.count > 1 else fmt for fmt, f in zip(formats, s.fields, strict=True)
        ]
        out += ["", f"{camel(s.name)} = np.dtype({{"]
        out.append(f'    "names": [{", ".join(repr(f.name) for f in s.fields)}],'.replace("'", '"'))
        out.append(f'    "formats": [{", ".join(formats)}],')
        out.append(f'    "offsets": [{", ".join(str(f.offset) for f in s.fields)}],')
        out.append(f'    "itemsize": {s.size},')
        out.append("})")
    out.append("")
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a checked-in output is stale"
    )
    check = parser.parse_args().check
    stale: list[str] = []
    known: dict[str, Struct] = {}
    modules: dict[str, str] = {}
    for header, c_out, py_out, stem in TARGETS:
        text = strip_comments((ROOT / header).read_text())
        constants, enums, structs = parse_constants(text), parse_enums(text), parse_structs(text, known)
        used = sorted({f.dtype for s in structs.values() for f in s.fields if f.dtype in known})
        imports = [f"from {modules[name]} import {camel(name)}" for name in used]
        digest = layout_hash(structs, enums, constants)
        outputs = {
            c_out: render_c(stem, header, structs, digest),
            py_out: render_python(stem, header, structs, enums, constants, digest, imports),
        }
        known |= structs
        modules |= dict.fromkeys(structs, py_out.removesuffix(".py").replace("/", "."))
        for path, content in outputs.items():
            target = ROOT / path
            if check and (not target.exists() or target.read_text() != content):
                stale.append(path)
            elif not check:
                target.write_text(content)
    if stale:
        print(f"stale: {', '.join(stale)}; run scripts/generate_abi.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
