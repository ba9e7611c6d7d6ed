"""Up to how many rows the GEMV is a dense model's fastest, by its weights."""

from __future__ import annotations

import pytest
from model_config import model_config

from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.native.model import target_of
from gpu_backend.models.quantization import ROUNDINGS
from gpu_backend.models.quantized import quantized


@pytest.mark.parametrize(("quantization", "rows"), [(None, 4), ("fp8", 4), ("int4", 4), ("mxfp4", 8)])
def test_rows_by_weights(quantization: str | None, rows: int) -> None:
    config = model_config(hidden=4096)
    if quantization:
        config = quantized(config, ROUNDINGS[quantization])
    assert target_of(config, Chip(132)).gemv_rows == rows


def test_rows_that_are_not_read_in_whole_rounds_have_none() -> None:
    config = quantized(model_config(hidden=5120), ROUNDINGS["mxfp4"])
    assert target_of(config, Chip(132)).gemv_rows == 0
