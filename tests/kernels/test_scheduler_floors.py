"""The scheduler's parts stand on floors, which kernels/scheduler/README.md lists: none knows one above."""

from __future__ import annotations

import re
import subprocess

import pytest
from compilation import ROOT, compiler
from limits import COMPILATION_S

SCHEDULER = ROOT / "kernels/scheduler"
PARTS_OF_STATE = {"constants.h", "state_layout.h"}  # state.h includes them, and nobody else
AROUND = {"host.h", "launcher.h", "emulation.h"}


def floors() -> dict[str, int]:
    """Header -> its floor, as the table says."""
    rows = re.findall(r"^\| (\d+) \| `(\w+\.h)` \|", (SCHEDULER / "README.md").read_text(), re.MULTILINE)
    return {header: int(floor) for floor, header in rows}


FLOORS = floors()


def included(header: str) -> list[str]:
    """The headers of the scheduler, and of any other folder, that one includes."""
    return re.findall(r'^#include "([^"]+)"', (SCHEDULER / header).read_text(), re.MULTILINE)


def part_of(header: str) -> str | None:
    """The class of a header that is written over a platform."""
    classes = re.findall(r"^template <class P>\nclass (\w+)", (SCHEDULER / header).read_text(), re.MULTILINE)
    return classes[-1] if classes else None


def test_every_header_has_a_floor() -> None:
    headers = {path.name for path in SCHEDULER.glob("*.h")}
    assert set(FLOORS) == headers - PARTS_OF_STATE - AROUND


def test_the_table_is_of_what_headers_include() -> None:
    """Else the next test would hold of anything."""
    assert "admission.h" in included("preemption.h")
    assert part_of("preemption.h") == "Preemption"


def test_a_part_includes_only_what_is_on_lower_floors() -> None:
    upward = [
        f"{header} (floor {floor}) includes {name}"
        for header, floor in FLOORS.items()
        for name in included(header)
        if not (name.startswith("../") or name in PARTS_OF_STATE or FLOORS.get(name, floor) < floor)
    ]
    assert not upward, "\n".join(upward)


@pytest.mark.parametrize("header", FLOORS)
def test_a_part_compiles_alone(header: str) -> None:
    """All of it: a part's functions are compiled for the host, too, not only read."""
    source = f'#include "{SCHEDULER / header}"\n'
    if part := part_of(header):
        source += '#include "kernels/scheduler/host.h"\n'
        source += f"template class blink::{part}<blink::HostPlatform>;\n"
    command = [compiler("g++"), "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I."]
    done = subprocess.run(
        [*command, "-x", "c++", "-"],
        input=source,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=COMPILATION_S,
    )
    assert done.returncode == 0, done.stderr


WRITES_OF_A_LIFE = re.compile(
    r"(?<!lease)\.state = "
    r"|\bsequence_index = "
    r"|\.use = "
    r"|(?:\+\+|--|&)s_\.(?:n_waiting|n_staged|n_active|n_zombies)\b"
    r"|\bs_\.(?:n_waiting|n_staged|n_active|n_zombies) [-+]?= "
)


def writers_of_a_life() -> set[str]:
    return {path.name for path in SCHEDULER.glob("*.h") if WRITES_OF_A_LIFE.search(path.read_text())}


def test_one_part_writes_a_request_s_state() -> None:
    """And which sequence is its own, what that is used for, and how many there are of each."""
    assert writers_of_a_life() == {"requests.h"}
