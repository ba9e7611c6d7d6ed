"""The link and the token reader over a fabric that reorders, delays, tears and breaks (link_stress.cpp)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from fabric_sources import LINK, WORK_QUEUE, WRITE_QUEUE
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
Build = Callable[..., Path]


def run(program: Path, *arguments: int) -> dict[str, int]:
    done = subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
        env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1"},
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("break_one_in", [0, 300, pytest.param(20, marks=pytest.mark.slow)])
def test_nothing_is_torn_run_twice_or_answered_wrongly(build_link_program: Build, break_one_in: int) -> None:
    """V3, V4, V7."""
    found = run(build_link_program("link_stress"), 5000, break_one_in, 1)
    assert found["torn"] == 0
    assert (found["connections"] > 10) == bool(break_one_in)
    assert (found["lost"] > 0) == bool(break_one_in)


@pytest.mark.parametrize("break_one_in", [0, pytest.param(300, marks=pytest.mark.slow)])
def test_without_the_read_back_payloads_are_torn_and_never_served(
    build_link_program: Build, break_one_in: int
) -> None:
    """R4 holds where V3 does not; and the fabric does reorder."""
    assert run(build_link_program("link_stress"), 5000, break_one_in, 0)["torn"] > 0


def test_no_race(build_link_program: Build) -> None:
    # -Wno-tsan: the sanitizer does not model fences. What they order here are atomics, which never race.
    run(
        build_link_program("link_stress", "-fsanitize=thread", "-Wno-tsan", name="link_stress_tsan"),
        2000,
        200,
        1,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "before", "after"),
    [
        (WORK_QUEUE, "IBV_SEND_INLINE | IBV_SEND_FENCE", "IBV_SEND_INLINE"),
        (WRITE_QUEUE, "  if (queue_.region().read_back) ", "  if (false) "),
    ],
    ids=["fence", "read"],
)
def test_the_fabric_shows_what_is_missing(
    build_link_program: Build, tmp_path: Path, source: str, before: str, after: str
) -> None:
    """Either half of V3 alone does not do: a link without it tears payloads."""
    text = (ROOT / source).read_text()
    assert text.count(before) == 1
    mutant = tmp_path / "mutant.cpp"
    mutant.write_text(text.replace(before, after))
    link = [str(mutant) if name == source else name for name in LINK]
    program = build_link_program("link_stress", name=f"mutant_{len(before)}", link=link)
    done = subprocess.run([program, "20000", "0", "1"], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 1
    assert "the payload does not match its checksum" in done.stderr
