"""The shapes of scripts/bench/shapes: models without weights."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ROUNDINGS
from gpu_backend.models.registry import read_model

SHAPES = Path(__file__).with_name("shapes")


def shape_config(name: str, quantization: str | None = None) -> Model:
    """`quantization`: a name of ROUNDINGS for narrow weights. Raises FileNotFoundError for a name that is
    none."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copy(SHAPES / f"{name}.json", Path(directory) / "config.json")
        return read_model(Path(directory), ROUNDINGS[quantization] if quantization else None)
