"""scripts/bench/closed_limit.py: what a closed loop can make at most."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.closed_limit import Gpu, Rate, Work, work_of
from limits import PROGRAM_S
from model_config import model_config

from gpu_backend.models.description import Experts

ROOT = Path(__file__).parents[2]
OVER_AND_OVER = {"us": 2.0, "watts": 600.0, "sm_mhz": 1500}
CEILINGS = [
    {"what": "reads", "amount": 8e6, "us": 1.0, "sustained": OVER_AND_OVER},
    {"what": "copies", "amount": 4e6, "us": 1.0, "sustained": OVER_AND_OVER},
    {"what": "multiplies", "amount": 8e8, "us": 1.0, "sustained": {**OVER_AND_OVER, "us": 4.0}},
]


def test_limits_are_of_the_measured_rates() -> None:
    gpu = Gpu.of(CEILINGS, limit_w=700, idle_w=100)
    assert gpu.reads == Rate(pytest.approx(4e12), pytest.approx(2e12), pytest.approx(2.5e-10))
    assert gpu.products == Rate(pytest.approx(8e14), pytest.approx(2e14), pytest.approx(2.5e-12))
    limits = gpu.limits(Work(bytes=4e9, flops=4e11))
    assert limits["memory"] == pytest.approx(1e3)  # 1 ms of reads, 0.5 ms of products behind them
    assert limits["in turn"] == pytest.approx(1 / 4e-3)
    assert limits["power"] == pytest.approx(600 / 2.0)
    assert gpu.limits(Work(bytes=4e9, flops=0))["power"] == pytest.approx(600 / 1.0)


def test_power_raises_no_limit() -> None:
    gpu = Gpu.of(CEILINGS, limit_w=1e6, idle_w=100)
    limits = gpu.limits(Work(bytes=4e9, flops=4e11))
    assert limits["power"] == limits["memory"]


def test_ceilings_of_a_short_run_are_refused() -> None:
    alone = [{**ceiling, "sustained": None} for ceiling in CEILINGS]
    with pytest.raises(ValueError, match="no copies and no multiplies over and over"):
        Gpu.of(alone, 700, 100)


def test_a_step_is_shared_by_its_rows_and_a_prompt_by_its_answer() -> None:
    config = model_config()
    one, two = (work_of(config, rows, 64, 32) for rows in (1, 2))
    cached = 2 * 2 * config.n_layers * config.n_kv_heads * config.head_dim * (64 + 16 + 1)
    assert one.bytes - cached == pytest.approx(2 * (two.bytes - cached))
    assert one.flops == pytest.approx(two.flops)
    assert one.flops > work_of(config, 1, 32, 32).flops
    # Beside few rows, a prompt needs experts that they do not.
    experts = model_config(experts=Experts(64, 2, 32, True))
    assert work_of(experts, 1, 64, 32).bytes > work_of(experts, 1, 64, 64).bytes


def test_it_prints_the_limits_of_a_shape(tmp_path: Path) -> None:
    results = tmp_path / "engine.json"
    results.write_text(json.dumps({"some run": {"ceilings": CEILINGS}}))
    command = [
        sys.executable,
        str(ROOT / "scripts/bench/closed_limit.py"),
        str(results),
        "--concurrency",
        "8,64",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PROGRAM_S)
    first, second = done.stdout.splitlines()
    assert first.startswith(
        "llama-3-8b, 8 at a time: 2027 MB and 70.4 GFLOP a token; tokens/s at most by memory"
    )
    assert second.startswith("llama-3-8b, 64 at a time: ")

    results.write_text(json.dumps({"ceilings": [{**CEILINGS[0], "sustained": None}]}))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PROGRAM_S)
    assert done.returncode == 2
    assert "run engine.py --sustained 1" in done.stderr
