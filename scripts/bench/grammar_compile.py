#!/usr/bin/env python3
"""How fast schemas become grammars: different schemas of realistic sizes, made up, each compiled once by the
store that frontends have, one at a time; then the last ones again, which the store has kept.

    python scripts/bench/grammar_compile.py [--schemas 10000] [--seed 1]

Prints how many a second of processor time, percentiles of the time and of the size, how many were refused,
and the memory of the process as it goes on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from nic_frontend.compiling.store import Asker, Grammars, Source
from nic_frontend.errors import ApiError
from nic_frontend.observe.metrics import Metrics

MAX_WORDS = 1 << 20
AGAIN = 200  # of the last schemas, which the store has room for
PATTERNS = ("^[A-Z]{2}\\d{4}$", "^[a-z0-9-]+$", "^\\+?\\d{7,15}$")
FORMATS = ("date", "date-time", "email", "uuid", "uri")
WORDS = """
name title id kind status price amount currency street city zip country email phone created updated tags items
notes summary score reason category priority owner start end width height color active address customer order
product quantity total discount language rating author source target message level code description
""".split()  # noqa: SIM905


class Maker:
    """Schemas as extraction and tools have them: objects of 3 to 12 properties, nested up to 4 deep, with
    definitions that are used several times or refer to themselves.
    """

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self._definitions: dict[str, Any] = {}

    def schema(self) -> dict[str, Any]:
        self._definitions = {}
        for i in range(self._source.choice((0, 0, 1, 2))):
            self._definitions[f"Part{i}"] = self._object(2)
        root = self._object(4)
        if self._definitions:
            root["$defs"] = self._definitions
        return root

    def _object(self, depth: int) -> dict[str, Any]:
        source = self._source
        names = source.sample(WORDS, source.randint(3, 12 if depth > 2 else 6))
        properties = {name: self._value(depth - 1) for name in names}
        required = [name for name in names if source.random() < 0.7]
        found = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        if source.random() < 0.5:
            found["description"] = " ".join(source.choices(WORDS, k=12))
        return found

    def _value(self, depth: int) -> dict[str, Any]:
        source = self._source
        kind = source.random()
        if depth > 0 and kind < 0.12:
            return self._object(depth)
        if depth > 0 and kind < 0.24:
            array: dict[str, Any] = {"type": "array", "items": self._value(depth - 1)}
            return {**array, "maxItems": source.randint(1, 20)} if source.random() < 0.3 else array
        if self._definitions and kind < 0.32:
            part = {"$ref": f"#/$defs/{source.choice(list(self._definitions))}"}
            return source.choice([part, {"anyOf": [part, {"type": "null"}]}])
        return self._scalar()

    def _scalar(self) -> dict[str, Any]:
        source = self._source
        return source.choice(
            [
                {"type": "string"},
                {"type": "string", "description": "Some text."},
                {"type": "string", "maxLength": source.choice([10, 50, 200])},
                {"type": "string", "enum": source.sample(WORDS, source.randint(2, 10))},
                {"type": "string", "format": source.choice(FORMATS)},
                {
                    "type": "string",
                    "pattern": source.choice(["^[A-Z]{2}\\d{4}$", "^[a-z0-9-]+$", "^\\+?\\d{7,15}$"]),
                },
                {"type": "integer"},
                {"type": "integer", "minimum": 0, "maximum": source.choice([10, 100, 1000])},
                {"type": "number"},
                {"type": "number", "minimum": 0, "maximum": 1},
                {"type": "boolean"},
                {"type": ["string", "null"]},
                {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            ]
        )


def percentiles(values: list[float]) -> str:
    ordered = sorted(values)
    at = {name: ordered[min(int(part * len(ordered)), len(ordered) - 1)] for name, part in
          (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("largest", 1.0))}  # fmt: skip
    return ", ".join(f"{name} {value:,.1f}" for name, value in at.items())


def resident_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def source(schema: dict[str, Any]) -> Source:
    return {"content": ["json", schema], "tools": [], "calls": [False, True, None], "thinks": None}


async def measure(maker: Maker, count: int) -> None:
    grammars = Grammars(MAX_WORDS, Metrics())
    compilers = 0.0  # seconds of a processor

    def charge(spent_s: float, _: bool) -> None:
        nonlocal compilers
        compilers += spent_s

    asker = Asker(working=lambda: contextlib.nullcontext(charge))
    await grammars.block(source({"type": "null"}), "schema")  # the processes have started
    times: list[float] = []
    sizes: list[float] = []
    lengths: list[float] = []
    memory: list[str] = []
    seen: set[bytes] = set()  # digests, so that this program's own memory stays small
    last: list[dict[str, Any]] = []
    seconds, refused = 0.0, 0
    while len(seen) < count:
        schema = maker.schema()
        text = json.dumps(schema)
        digest = hashlib.sha256(text.encode()).digest()
        if digest in seen:
            continue
        seen.add(digest)
        lengths.append(len(text))
        last = [*last[-AGAIN + 1 :], schema]
        began, at = time.process_time(), time.perf_counter()
        try:
            block = await grammars.block(source(schema), "schema", asker=asker)
            sizes.append(len(block) / 1024)
        except ApiError as error:
            refused += 1
            print(f"refused: {error}")
        times.append((time.perf_counter() - at) * 1e3)
        seconds += time.process_time() - began
        if len(seen) % max(count // 10, 1) == 0:
            memory.append(f"{resident_mib():,.0f}")
    began = time.process_time()
    for schema in last:
        await grammars.block(source(schema), "schema")
    again = (time.process_time() - began) / len(last)
    grammars.close()
    print(f"{count:,} different schemas of {percentiles(lengths)} characters")
    print(
        f"{count / (seconds + compilers):,.0f} a second of processor time, of which this process had "
        f"{100 * seconds / (seconds + compilers):.0f} %; {refused} refused"
    )
    print(f"ms each: {percentiles(times)}")
    print(f"KiB each: {percentiles(sizes)}")
    print(f"the last {len(last)} again: {again * 1e6:,.0f} us each")
    print(f"MiB of memory, at each tenth: {', '.join(memory)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--schemas", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    asyncio.run(measure(Maker(wanted.seed), wanted.schemas))


if __name__ == "__main__":
    main()
