"""CPU time of process trees, from /proc (proc_pid_stat(5))."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Watched:
    """Processes that are counted together, each with its descendants."""

    name: str
    pids: tuple[int, ...]


def watched(text: str) -> Watched:
    """Of "NAME=PID[,PID]". Raises ValueError when a process is not there."""
    name, equals, pids = text.partition("=")
    if not name or not equals or not all(pid.isdigit() for pid in pids.split(",")):
        raise ValueError(f"'{text}' is not NAME=PID[,PID]")
    result = Watched(name, tuple(int(pid) for pid in pids.split(",")))
    for pid in result.pids:
        if not Path(f"/proc/{pid}").exists():
            raise ValueError(f"there is no process {pid}")
    return result


def seconds(watch: Watched) -> float:
    """User and system time of the trees so far; children that have ended and were waited for count too."""
    table = _table()
    return sum(table[pid][1] for pid in _trees(watch.pids, table)) / TICKS


def tree(pid: int) -> set[int]:
    """The process and its descendants."""
    return _trees((pid,), _table())


def processes() -> Iterator[tuple[int, list[str]]]:
    """Each process of this machine, with its fields of proc_pid_stat(5) from the state on."""
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            fields = (directory / "stat").read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        yield int(directory.name), fields


def _table() -> dict[int, tuple[int, int]]:
    """Of each process its parent and its ticks of CPU time."""
    return {pid: (int(fields[1]), sum(int(field) for field in fields[11:15])) for pid, fields in processes()}


def _trees(roots: tuple[int, ...], table: dict[int, tuple[int, int]]) -> set[int]:
    found = {pid for pid in roots if pid in table}
    while more := {pid for pid, (parent, _) in table.items() if parent in found} - found:
        found |= more
    return found
