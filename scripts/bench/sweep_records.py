"""The file of a sweep's results: JSON lines, one record a point, appended as soon as it is measured."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.json_lines import append_line
from bench.sweep_plan import Key, Unit

Record = dict[str, Any]
MEASURED, FAILED = "measured", "failed"  # a record's status
LATE = "late"  # likewise: it was begun with others of its unit, and then the time was over
ATTEMPTS = {FAILED: 2, LATE: 3}  # of a point that fails, or for which there is no time


def read_records(path: Path) -> list[Record]:
    """Those of complete lines: a last line that was torn by a kill does not count. Raises SystemExit for
    other lines that are no record, and where there is no file.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise SystemExit(f"{path} cannot be read: {error.strerror}") from None
    records = []
    for number, line in enumerate(text[: text.rfind("\n") + 1].splitlines(), 1):
        try:
            record = json.loads(line)
            key_of(record)
        except (ValueError, TypeError, KeyError):
            raise SystemExit(f"{path}, line {number}: this is no record of scripts/bench/sweep.py") from None
        records.append(record)
    return records


def read_files(paths: Iterable[Path]) -> list[Record]:
    """Those of every file once, however often and by whatever path it is named: a point that counted twice
    would look like a repeat.
    """
    files: dict[Path, Path] = {}
    for path in paths:
        files.setdefault(path.resolve(), path)
    return [record for path in files.values() for record in read_records(path)]


class Results:
    """The records so far, and the file to which more are appended. `earlier` are others' files, only read."""

    def __init__(self, path: Path, earlier: Sequence[Path] = ()) -> None:
        self._path = path
        self.records = read_files([*earlier, *([path] if path.exists() else [])])

    def append(self, record: Record) -> None:
        append_line(self._path, record)
        self.records.append(record)


def key_of(record: Record) -> Key:
    return Key(**{name: record[name] for name in Key.__dataclass_fields__})


def record_of(key: Key, call: str, status: str, found: dict[str, Any]) -> Record:
    """`call` names the run: points of one call were measured on one card, one after the other."""
    return {**asdict(key), "call": call, "status": status, **found}


def given_up(records: Iterable[Record]) -> set[Key]:
    """Points that failed, or were late, so often that they are not tried again."""
    read = list(records)
    return set().union(*(tried_in_vain(read, status) for status in ATTEMPTS))


def tried_in_vain(records: Iterable[Record], status: str) -> set[Key]:
    """Points that are given up because of this status."""
    times = Counter(key_of(record) for record in records if record["status"] == status)
    return {key for key, n in times.items() if n >= ATTEMPTS[status]}


def is_done(unit: Unit, records: Sequence[Record]) -> bool:
    """Whether one call has measured every point of the unit that is not given up."""
    wanted = {point.key for point in unit.points} - given_up(records)
    measured: dict[str, set[Key]] = {}
    for record in records:
        if record["status"] == MEASURED:
            measured.setdefault(record["call"], set()).add(key_of(record))
    return not wanted or any(wanted <= of_call for of_call in measured.values())


def left(plan: Iterable[Unit], records: Sequence[Record]) -> list[Unit]:
    return [unit for unit in plan if not is_done(unit, records)]
