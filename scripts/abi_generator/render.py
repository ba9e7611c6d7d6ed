"""The texts that are generated: assertions and tables in C, constants, enums and numpy dtypes in Python."""

from __future__ import annotations

from pathlib import Path

from abi_generator.headers import Struct
from abi_generator.kernels import KernelHeader, python_name

CTYPES = {
    "u1": "ctypes.c_uint8",
    "<i4": "ctypes.c_int32",
    "<u4": "ctypes.c_uint32",
    "<i8": "ctypes.c_int64",
    "<u8": "ctypes.c_uint64",
    "<f4": "ctypes.c_float",
}


def camel(name: str) -> str:
    """blink_step_set -> StepSet; a name in C++ is one already."""
    if "_" not in name:
        return name
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
        out += render_enum(name, values)
    for s in structs.values():
        out += render_dtype(s)
    out.append("")
    return "\n".join(out)


def render_dtype(struct: Struct) -> list[str]:
    """A numpy dtype with the struct's layout. Members that are structs are named by their dtypes."""
    formats = []
    for f in struct.fields:
        name = camel(f.dtype) if f.dtype.startswith("blink_") else f'"{f.dtype}"'
        formats.append(f"({name}, ({f.count},))" if f.count > 1 else name)
    names = ", ".join(f'"{f.name}"' for f in struct.fields)
    return [
        "",
        f"{camel(struct.name)} = np.dtype({{",
        f'    "names": [{names}],',
        f'    "formats": [{", ".join(formats)}],',
        f'    "offsets": [{", ".join(str(f.offset) for f in struct.fields)}],',
        f'    "itemsize": {struct.size},',
        "})",
    ]


def render_enum(name: str, values: list[tuple[str, str]]) -> list[str]:
    prefix = common_prefix([n for n, _ in values])
    members = [f"    {n.removeprefix(prefix)} = {v}" for n, v in values]
    return ["", f"class {camel(name)}(IntEnum):", *members, ""]


def render_ctypes(
    headers: list[str],
    structs: dict[str, Struct],
    enums: dict[str, list[tuple[str, str]]],
    constants: dict[str, str],
) -> str:
    """The view of a library that is called through ctypes, which lays the structs out itself."""
    out = [f'"""Generated from {", ".join(headers)} by scripts/generate_abi.py. Do not edit."""']
    out += ["", "# fmt: off", "import ctypes", *["from enum import IntEnum"] * bool(enums), ""]
    out += [f"{name.removeprefix('BLINK_')} = {value}" for name, value in constants.items()]
    for name, values in enums.items():
        out += ["", *render_enum(name, values)[:-1]]
    for s in structs.values():
        out += ["", "", f"class {camel(s.name)}(ctypes.Structure):", "    _fields_ = ("]
        for f in s.fields:
            many = f" * {f.count}" if f.count > 1 else ""
            out.append(f'        ("{f.name}", {CTYPES[f.dtype]}{many}),')
        out.append("    )")
    return "\n".join([*out, ""])


def render_kernel_header(header: KernelHeader, path: str, imports: list[str]) -> str:
    """The Python view of a kernels' header: constants, then dtypes."""
    out = [f'"""Generated from {path} by scripts/generate_abi.py. Do not edit."""', "", "# fmt: off"]
    if header.structs:
        out += ["import numpy as np", *(["", *imports] if imports else [])]
    out += [""] * bool(header.structs and header.constants)
    out += [f"{python_name(name)} = {value}" for name, value in header.constants.items()]
    for struct in header.structs.values():
        out += render_dtype(struct)
    return "\n".join([*out, ""])
