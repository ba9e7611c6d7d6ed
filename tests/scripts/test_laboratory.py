"""What a sweep's machine measures of itself and of its servers, with a pretended GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import laboratory
from bench.laboratory import Cores, Machine, Setting


def test_an_idle_gpu_is_measured_before_it_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_warm = False

    def read_rate(_: Machine) -> float:
        nonlocal is_warm
        is_warm = True
        return 4.0

    monkeypatch.setattr(Machine, "_read_rate", read_rate)
    monkeypatch.setattr(Machine, "watts", lambda _: 120.0 if is_warm else 75.0)
    monkeypatch.setattr(laboratory, "of_gpu", lambda _: "a GPU")
    found = Machine(Setting(Cores.of(range(16)), tmp_path, tmp_path, commit="abc")).origin()
    assert (found["idle_watts"], found["read_tb_per_s"]) == (75.0, 4.0)
