"""What a header says: its constants, enums and structs, and how a C compiler lays the structs out.

The headers keep to a subset of C++: `#define NAME literal`, `enum name { A = literal, ... }`, and structs. A
struct begins with its members, which are fixed-width scalars, pointers, one-dimensional arrays of those, or
earlier structs. Methods may follow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

SCALARS = {
    "int8_t": "i1",
    "uint8_t": "u1",
    "uint16_t": "<u2",
    "int32_t": "<i4",
    "uint32_t": "<u4",
    "int64_t": "<i8",
    "uint64_t": "<u8",
    "float": "<f4",
}


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

    def append(self, item: Field) -> None:
        """The next member, where a compiler puts it."""
        end = self.fields[-1].offset + self.fields[-1].size * self.fields[-1].count if self.fields else 0
        item.offset = -(-end // item.align) * item.align
        self.fields.append(item)
        self.align = max(self.align, item.align)
        end = item.offset + item.size * item.count
        self.size = -(-end // self.align) * self.align


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


def parse_members(line: str, structs: dict[str, Struct]) -> Iterator[Field]:
    """The members of one declaration: `const void *norm, *w`."""
    match = re.fullmatch(r"(?:const\s+)?(?:struct\s+)?(\w+)\b\s*(.+)", line)
    if not match:
        raise SystemExit(f"generate_abi: cannot parse the member '{line}'")
    type_name, declarators = match.groups()
    for declarator in declarators.split(","):
        found = re.fullmatch(r"(\*?)\s*(\w+)(?:\[(\d+)\])?", declarator.strip())
        if not found:
            raise SystemExit(f"generate_abi: cannot parse the member '{line}'")
        pointer, name, count = found.groups()
        repeat = int(count or 1)
        if pointer:
            yield Field(name, "<u8", 8, 8, repeat)
        elif type_name in SCALARS:
            size = int(SCALARS[type_name][-1])
            yield Field(name, SCALARS[type_name], size, size, repeat)
        elif type_name in structs:
            yield Field(name, type_name, structs[type_name].size, structs[type_name].align, repeat)
        else:
            raise SystemExit(f"generate_abi: unknown type '{type_name}' of '{name}'")


def parse_struct(name: str, alignment: str, body: str, known: dict[str, Struct]) -> Struct:
    """`body` up to the first method, whose parameter list has the first parenthesis."""
    struct = Struct(name, align=int(alignment or 1))
    *declarations, _ = body.partition("(")[0].split(";")
    for line in declarations:
        for item in parse_members(" ".join(line.split()), known):
            struct.append(item)
    return struct


def parse_structs(text: str, known: dict[str, Struct]) -> dict[str, Struct]:
    """The structs of C defined in `text`; members may be of `known` structs, defined in an earlier header.

    A constant of `text` may be the length of an array.
    """
    constants = parse_constants(text)
    text = re.sub(r"\[(BLINK_\w+)\]", lambda match: f"[{constants[match[1]]}]", text)
    structs: dict[str, Struct] = {}
    for name, body in re.findall(r"struct\s+(\w+)\s*\{(.*?)\}\s*;", text, flags=re.S):
        structs[name] = parse_struct(name, "", body, known | structs)
    return structs
