"""What scripts/bench/matmuls.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from fake_cuda import all_captures, op, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

ALL = ["qkv", "o", "gate_up", "down"]
FP8 = ["fp8", "fp8-block"]
BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import matmuls, replay
from bench.ceilings import Ceiling
from gpu_backend.models.registry import read_model

matmuls.time_us = replay.time_us = lambda enqueue, wait: (enqueue(), wait(), 1e3)[2]
of_all = matmuls.sizes_of
# However they are cut, the products of all matrices take minutes to compile, and so do tiles of all widths.
matmuls.sizes_of = lambda model: [one for one in of_all(model) if one.role.value in {kept}]
of_all_widths = matmuls.possible_cuts
widths = 64, 80, 176
matmuls.possible_cuts = lambda *shape: [cut for cut in of_all_widths(*shape) if cut.params.columns in widths]
matmuls.reads = lambda device, stream, measure: [Ceiling("reads", 8e9, 2e3)]
bench = matmuls.Bench(read_model(Path(sys.argv[1])), [{rows}], {cuts}, forms={forms})
print("\\n".join(matmuls.{table}(bench, [{rows}])))
bench.close()
"""


def test_each_matmul_is_timed_in_every_type(fake: Path, tmp_path: Path) -> None:
    """Its quantisation alone, too; four layers take a millisecond."""
    config = {**small_models.DENSE, "intermediate_size": 1024}
    printed, log = run(
        fake, tmp_path, BENCH.format(forms=FP8, cuts=False, table="table", rows=80, kept=ALL), config
    )
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[2:]]
    assert [row[1] for row in rows] == [n for n in ("qkv", "o", "gate_up", "down", "all") for _ in range(3)]
    assert all(row[2:4] == ["fp8", "tiled_fp8_gemm of 64 columns, 1 splits"] for row in rows[1:12:3])
    assert {row[4] for row in rows[:12]} == {"250.0"}
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    assert timed.count(["quantize", "tiled_fp8_gemm"] * 4) == 8


def test_few_rows_are_not_quantised(fake: Path, tmp_path: Path) -> None:
    config = {**small_models.DENSE, "intermediate_size": 1024}
    printed, _ = run(
        fake, tmp_path, BENCH.format(forms=FP8, cuts=False, table="table", rows=20, kept=ALL), config
    )
    first, _, *rows = printed.splitlines()
    assert first == "reads alone: 4.00 TB/s"
    cells = [[cell.strip() for cell in row.split("|")] for row in rows]
    assert {row[3] for row in cells[:12]} == {"skinny_gemm"}
    assert {row[5] for row in cells[:12]} == {"0.0"}


def test_codes_of_few_rows_are_timed_in_both_forms(fake: Path, tmp_path: Path) -> None:
    config = {**small_models.DENSE, "intermediate_size": 1024}
    bench = BENCH.format(forms=["int4", "mxfp4"], cuts=False, table="table", rows=1, kept=["down"])
    printed, log = run(fake, tmp_path, bench, config)
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[2:5]]
    assert [row[2] for row in rows] == ["bf16", "int4", "mxfp4"]
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    assert timed.count(["code_gemv"] * 4) == 2


def test_products_in_fp8_are_timed_however_they_are_cut(fake: Path, tmp_path: Path) -> None:
    """down of 2048 columns has 16 stages of 128, of which a split has at least 8. Tiles of 176 columns are
    too wide for 80 rows to be worth a measurement."""
    config = {**small_models.DENSE, "intermediate_size": 2048}
    printed, log = run(
        fake,
        tmp_path,
        BENCH.format(forms=FP8, cuts=True, table="table_of_cuts", rows=80, kept=["down"]),
        config,
    )
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[1:]]
    down = [row for row in rows if row[1] == "down"]
    for name in ("fp8", "fp8-block"):
        cuts = {tuple(row[3:5]) for row in down if row[2] == name}
        assert {("80", "1"), ("80", "2")} <= cuts
        assert ("176", "1") not in cuts
    assert [row[9] for row in down].count("*") == 2
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    splits = [row for row in rows if row[4] == "2"]
    assert timed.count(["tiled_fp8_gemm", "split_sums"] * 4) == len(splits)


def test_products_of_few_rows_are_timed_however_they_are_cut(fake: Path, tmp_path: Path) -> None:
    """One of the tilings is that of a step."""
    config = {**small_models.DENSE, "intermediate_size": 2048}
    printed, log = run(
        fake,
        tmp_path,
        BENCH.format(forms=FP8, cuts=True, table="table_of_cuts", rows=20, kept=["down"]),
        config,
    )
    rows = [[cell.strip() for cell in row.split("|")] for row in printed.splitlines()[1:]]
    down = [row for row in rows if row[1] == "down"]
    assert {row[3] for row in down} == {"1", "2", "4", "8"}
    assert [row[10] for row in down].count("*") == 1
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    assert timed.count(["skinny_gemm"] * 4) == len(rows)
