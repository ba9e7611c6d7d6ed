"""What scripts/bench/experts.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from fake_cuda import all_captures, op, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import experts, replay
from gpu_backend.models.registry import read_model

replay.time_us = lambda enqueue, wait: (enqueue(), wait(), 1e3)[2]
bench = experts.Bench(read_model(Path(sys.argv[1])), [1, 8, 300])
print("\\n".join(experts.table(bench, [1, 8, 300])))
bench.close()
"""


@pytest.mark.slow
def test_experts_are_timed_in_every_type(fake: Path, tmp_path: Path) -> None:
    """Of one, few and many tokens; four layers take a millisecond."""
    config = {**small_models.EXPERTS, "moe_intermediate_size": 128}
    printed, log = run(fake, tmp_path, BENCH, config)
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[1:]]
    assert [row[2] for row in rows] == [f"moe_{n}" for n in ("one", "stream", "tiled") for _ in range(3)]
    assert {row[3] for row in rows} == {"250.0"}
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    assert timed.count(["moe_single_token_gate_up", "moe_single_token_down"] * 4) == 3
    assert sum("moe_grouped_fp8_gemm" in capture for capture in timed) == 2
