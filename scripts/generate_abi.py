#!/usr/bin/env python3
"""Generates the Python view and the layout assertions of what two languages share.

Of each C header in TARGETS, with its parts: NAME_layout.h (a hash of the layout, a static_assert on every
field's offset, and the table that the compiled library exports so that tests can compare) and an abi.py
(constants, IntEnums, numpy dtypes).

Of each library's headers in LIBRARIES: an abi.py with constants, IntEnums and ctypes structures, which follow
the compiler's rules by themselves.

Of each header of the kernels that has constants or structs for the host: a module of its name in
gpu_backend/kernel_abi. The kernels are compiled at start from the same tree, so these need no hash; tests
compare them with what the compiler makes of the headers.

The outputs are checked in; `--check` exits 1 when they differ from what the headers say.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from abi_generator.headers import Struct, parse_constants, parse_enums, parse_structs, strip_comments
from abi_generator.kernels import kernel_headers
from abi_generator.render import camel, render_c, render_ctypes, render_kernel_header, render_python

ROOT = Path(__file__).resolve().parent.parent
TARGETS = [
    ("ringbuffer/ring.h", "ringbuffer/ring_layout.h", "ringbuffer/abi.py", "ring"),
    ("ringbuffer/grammar.h", "ringbuffer/grammar_layout.h", "ringbuffer/grammar_abi.py", "grammar"),
    ("kernels/step.h", "kernels/step_layout.h", "gpu_backend/abi.py", "step"),
    (
        "kernels/scheduler/state.h",
        "kernels/scheduler/state_layout.h",
        "gpu_backend/scheduler_abi.py",
        "scheduler",
    ),
    ("kernels/reference/model.h", "kernels/reference/model_layout.h", "gpu_backend/models/abi.py", "model"),
    (
        "kernels/megakernel/arguments.h",
        "kernels/megakernel/arguments_layout.h",
        "gpu_backend/megakernel_abi.py",
        "megakernel",
    ),
]
# Of libraries that Python calls: the module, and the headers that it is the view of.
LIBRARIES = [
    ("nic_frontend/abi.py", ["nic_frontend/native/frontend.h", "nic_frontend/native/link_bench.h"]),
    ("nic_frontend/grammar/abi.py", ["nic_frontend/native/grammar/compiler.h"]),
    ("ringbuffer/rdma/abi.py", ["ringbuffer/rdma/address.h"]),
]
KERNELS = (
    "kernels/engine.cu",
    "kernels/echo/echo.cu",
)  # whose headers the host shares constants and structs with
KERNEL_ABI = "gpu_backend/kernel_abi"


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


def text_of(header: Path) -> str:
    """The header, and in their places its parts: what it includes from its own folder that has no view of its
    own."""
    others = {ROOT / path for target in TARGETS for path in target[:2]}

    def part(include: re.Match[str]) -> str:
        path = header.parent / include[1]
        return include[0] if path in others else path.read_text()

    return re.sub(r'^#include "(\w+\.h)"$', part, header.read_text(), flags=re.M)


def shared_headers(outputs: dict[str, str], known: dict[str, Struct], modules: dict[str, str]) -> None:
    """The views of TARGETS into `outputs`, by path. `known` and `modules` get their structs, and where these
    are."""
    for header, c_out, py_out, stem in TARGETS:
        text = strip_comments(text_of(ROOT / header))
        constants, enums, structs = parse_constants(text), parse_enums(text), parse_structs(text, known)
        digest = layout_hash(structs, enums, constants)
        imports = dtype_imports(structs, known, modules)
        outputs[c_out] = render_c(stem, header, structs, digest)
        outputs[py_out] = render_python(stem, header, structs, enums, constants, digest, imports)
        known |= structs
        modules |= dict.fromkeys(structs, py_out.removesuffix(".py").replace("/", "."))


def dtype_imports(structs: dict[str, Struct], known: dict[str, Struct], modules: dict[str, str]) -> list[str]:
    used = sorted({f.dtype for s in structs.values() for f in s.fields if f.dtype in known})
    return [f"from {modules[name]} import {camel(name)}" for name in used]


def library_views(outputs: dict[str, str]) -> None:
    """The views of LIBRARIES into `outputs`, by path."""
    for path, headers in LIBRARIES:
        text = "\n".join(strip_comments((ROOT / header).read_text()) for header in headers)
        view = parse_structs(text, {}), parse_enums(text), parse_constants(text)
        outputs[path] = render_ctypes(headers, *view)


def kernel_views(outputs: dict[str, str], known: dict[str, Struct], modules: dict[str, str]) -> None:
    """The modules of KERNEL_ABI into `outputs`, by path."""
    outputs[f"{KERNEL_ABI}/__init__.py"] = ""
    for source in KERNELS:
        for header in kernel_headers(ROOT / source, ROOT, known):
            path = f"{KERNEL_ABI}/{header.path.stem}.py"
            name = header.path.relative_to(ROOT).as_posix()
            view = render_kernel_header(header, name, dtype_imports(header.structs, known, modules))
            if outputs.setdefault(path, view) != view:
                raise SystemExit(
                    f"generate_abi: {name} and another header are both called {header.path.stem}"
                )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a checked-in output is stale"
    )
    check = parser.parse_args().check
    outputs: dict[str, str] = {}
    known: dict[str, Struct] = {}
    modules: dict[str, str] = {}
    shared_headers(outputs, known, modules)
    library_views(outputs)
    kernel_views(outputs, known, modules)
    kernel_abi = ROOT / KERNEL_ABI
    left = [path for path in kernel_abi.glob("*.py") if path.relative_to(ROOT).as_posix() not in outputs]
    stale = [str(path.relative_to(ROOT)) for path in left]
    for path in left if not check else []:
        path.unlink()
    for name, content in outputs.items():
        target = ROOT / name
        if check and (not target.exists() or target.read_text() != content):
            stale.append(name)
        elif not check:
            target.parent.mkdir(exist_ok=True)
            target.write_text(content)
    if check and stale:
        print(f"stale: {', '.join(sorted(stale))}; run scripts/generate_abi.py", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
