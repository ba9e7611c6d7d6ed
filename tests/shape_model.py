"""A model of scripts/bench/shapes, described without weights."""

from __future__ import annotations

import json
from pathlib import Path

from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model

SHAPES = Path(__file__).resolve().parents[1] / "scripts" / "bench" / "shapes"


def shape_model(name: str, scratch: Path, **changes: int) -> Model:
    """`changes`: fields of its config.json, which is written to `scratch`, that are to be others."""
    fields = json.loads((SHAPES / f"{name}.json").read_text()) | changes
    (scratch / "config.json").write_text(json.dumps(fields))
    return read_model(scratch)
