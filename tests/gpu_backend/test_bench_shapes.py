"""The configurations that the benchmarks run are ones that can be served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_backend.models.registry import read_model

SHAPES = Path(__file__).parents[2] / "scripts" / "bench" / "shapes"


@pytest.mark.parametrize("name", [path.stem for path in sorted(SHAPES.glob("*.json"))])
def test_every_shape_of_the_benchmarks_is_supported(tmp_path: Path, name: str) -> None:
    raw = json.loads((SHAPES / f"{name}.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw))
    assert read_model(tmp_path).architecture == raw["architectures"][0]
