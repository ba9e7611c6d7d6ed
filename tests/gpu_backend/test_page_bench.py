"""What scripts/bench/page_copies.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from fake_cuda import captures, op, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import page_copies
from gpu_backend.engines import kv_pages
from gpu_backend.models.registry import read_model

kv_pages.COPIED_PAGES = 3
page_copies.time_us = lambda enqueue, wait: (enqueue(), wait(), 1e3)[2]
bench = page_copies.PageBench(read_model(Path(sys.argv[1])), [32, 128])
print(page_copies.report([bench.measure(n) for n in (32, 128)]))
bench.close()
"""


def test_copies_and_prefill_steps_are_timed_by_length(fake: Path, tmp_path: Path) -> None:
    """Two pages take one copy step of at most three, eight take three; each step takes a millisecond."""
    printed, log = run(fake, tmp_path, BENCH, small_models.DENSE)
    rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in printed.splitlines()[2:]]
    assert [(row[0], row[2], row[3], row[5], row[7]) for row in rows] == [
        ("32", "1", "1000", "1000", "1000"),
        ("128", "3", "3000", "3000", "1000"),
    ]
    copies = [[op(call) for call in capture] for capture in captures(log)][-3:]
    assert copies == [["gate", "copy_pages"]] * 3
