"""What scripts/bench/attention.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from fake_cuda import all_captures, op, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import attention, cache_fill, replay
from bench.ceilings import Ceiling
from gpu_backend.models.registry import read_model

replay.time_us = lambda enqueue, wait: (enqueue(), wait(), 1e3)[2]
attention.reads = lambda *_: [Ceiling("reads", 4e9, 1e3)]
attention.BEYOND_L2 = cache_fill.FILL_BYTES = 1 << 16
bench = attention.Bench(read_model(Path(sys.argv[1])))
cases = [attention.Case(3, 100), attention.Case(3, 100, 2), attention.Case(0, 70)]
print("\\n".join(attention.table(bench, cases)))
bench.close()
"""


def test_rows_and_prompts_are_timed_over_both_caches(fake: Path, tmp_path: Path) -> None:
    """Four layers take a millisecond."""
    printed, log = run(fake, tmp_path, BENCH, small_models.DENSE)
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[1:]]
    assert [row[:4] for row in rows] == [
        [*what, kind]
        for what in (("3", "0", "100"), ("3", "2", "100"), ("prompt", "", "70"))
        for kind in ("bfloat16", "float8_e4m3fn")
    ]
    assert {row[5] for row in rows} == {"250.00"}
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    kernels = (["decode_attention"], ["append_kv", "decode_attention"], ["flash_attention"])
    assert timed == [of_layer * 4 for of_layer in kernels for _ in range(2)]
