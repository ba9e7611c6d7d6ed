"""What the host takes from the kernels' headers: their integer constants, and structs that it fills in.

The headers are those that NVRTC compiles into a module of ours. A constant is shared if it stands in a
namespace, not within a struct or a function, which the headers' format shows: `constexpr` begins the line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from abi_generator.expressions import Names, Template, evaluate
from abi_generator.headers import Struct, parse_constants, parse_struct, strip_comments

DEFINED = {"__CUDACC__", "__CUDACC_RTC__", "__CUDA_ARCH__", "__cplusplus"}  # by NVRTC
# Structs that the host fills in, or of which it allocates arrays.
STRUCTS = (
    "KvSplitLimits",
    "KvSplit",
    "ExpertUnit",
    "PrefillUnit",
    "FusedRouter",
    "Routing",
    "TiledParams",
    "TiledFp8Params",
    "SkinnyParams",
    "FusedNorm",
    "WeightsAhead",
    "blink_echo_slot",
)
CONSTANT = re.compile(
    r"^(?:template\s*<(?P<parameters>[^>]*)>\s*)?constexpr\s+(?:uint32_t|int)\s+(?P<declarators>[^;]*);",
    flags=re.M,
)
INCLUDE = re.compile(
    r'^#\s*(?:include|define\s+\w+)\s+"([^"]+\.h)"', flags=re.M
)  # `#include NAME` needs a #define
STRUCT = re.compile(r"^struct\s+(?:alignas\((\d+)\)\s+)?(\w+)\s*\{(.*?)^\};", flags=re.M | re.S)


@dataclass
class KernelHeader:
    """One header: `constants` by the names they have in C++."""

    path: Path
    constants: dict[str, int]
    structs: dict[str, Struct]


def python_name(constant: str) -> str:
    """kSplitPlanThreads -> SPLIT_PLAN_THREADS."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", constant.removeprefix("k")).upper()


def preprocessed(text: str) -> str:
    """The lines that NVRTC compiles: conditions on a macro's definition hold or not, those of #if and #elif,
    which are on a host's instruction set, do not."""
    kept: list[str] = []
    conditions: list[tuple[bool, bool]] = []  # around the line: whether this branch is taken, whether one was
    for line in strip_comments(text).splitlines():
        if match := re.match(r"\s*#\s*if(n?)def\s+(\w+)", line):
            holds = (match[2] in DEFINED) != bool(match[1])
            conditions.append((holds, holds))
        elif re.match(r"\s*#\s*if\b", line):
            conditions.append((False, False))
        elif match := re.match(r"\s*#\s*el(if|se)\b", line):
            holds = match[1] == "se" and not conditions[-1][1]
            conditions[-1] = (holds, holds or conditions[-1][1])
        elif re.match(r"\s*#\s*endif\b", line):
            conditions.pop()
        elif all(taken for taken, _ in conditions):
            kept.append(line)
    return "\n".join(kept)


def included(source: Path, root: Path) -> list[Path]:
    """The headers of ours that `source` includes, and those that they do, each before what needs it."""
    found: list[Path] = []
    seen: set[Path] = set()

    def visit(path: Path) -> None:
        for name in INCLUDE.findall(path.read_text()):
            header = next((p for p in ((path.parent / name).resolve(), root / name) if p.is_file()), None)
            if header is not None and header not in seen:
                seen.add(header)
                visit(header)
                found.append(header)

    visit(source)
    return found


def declared(text: str) -> Names:
    """The constants of one header, not evaluated yet."""
    names: Names = {}
    for match in CONSTANT.finditer(text):
        parameters = match["parameters"]
        for declarator in match["declarators"].split(", k"):
            name, expression = (part.strip() for part in declarator.split("=", 1))
            name = name if name.startswith("k") else f"k{name}"
            names[name] = " ".join(expression.split())
            if parameters is not None:
                words = tuple(parameter.split()[-1] for parameter in parameters.split(","))
                names[name] = Template(words, " ".join(expression.split()))
    return names


def kernel_headers(source: Path, root: Path, known: dict[str, Struct]) -> list[KernelHeader]:
    """The headers below `source` that have something to share; `known` structs may be members of theirs.

    Raises Unknown for an expression that is not understood.
    """
    texts = {path: preprocessed(path.read_text()) for path in included(source, root)}
    every: Names = {}
    for path, text in texts.items():
        every |= {
            name: int(value, 0) for name, value in parse_constants(strip_comments(path.read_text())).items()
        }
        if double := every.keys() & (names := declared(text)).keys():
            raise SystemExit(f"generate_abi: {path.name} defines {', '.join(sorted(double))} a second time")
        every |= names
    headers = []
    for path, text in texts.items():
        constants = {
            name: evaluate(name, every) for name, value in declared(text).items() if isinstance(value, str)
        }
        structs = {
            name: parse_struct(name, alignment, body, known)
            for alignment, name, body in STRUCT.findall(text)
            if name in STRUCTS
        }
        if constants or structs:
            headers.append(KernelHeader(path, constants, structs))
    return headers
