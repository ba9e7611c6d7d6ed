"""Segments of models that are not loaded, by their config.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from small_models import DENSE

from gpu_backend.abi import StepKind
from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.base import Limits, Shape
from gpu_backend.engines.native.model import NativeModel
from gpu_backend.engines.native.step import StepBuilder
from gpu_backend.engines.tensorrt.segments import Segment, segmented
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.registry import read_model
from gpu_backend.ops.operations import Operation

GEMMA: dict[str, Any] = {
    **DENSE,
    "architectures": ["Gemma3ForCausalLM"],
    "query_pre_attn_scalar": 64,
    "sliding_window": 24,
    "sliding_window_pattern": 2,
    "rope_local_base_freq": 10000.0,
}

LIMITS = Limits(
    max_batch=8, max_context=256, max_prefill_tokens=64, max_prefill_slots=4, page_size=16, total_pages=64
)
SHAPES = (Shape(StepKind.DECODE, 4, 4), Shape(StepKind.PREFILL, 64, 4), Shape(StepKind.MIXED, 64, 8))
ADA = (8, 9)


def segmented_step(
    directory: Path, config: dict[str, Any], shape: Shape, form: ScaleForm | None = None
) -> list[Operation | Segment]:
    """Of a step of `shape`; `directory` gets the config.json. `form`: weights are in fp8 with such scales."""
    (directory / "config.json").write_text(json.dumps(config))
    model = read_model(directory, form)
    described = NativeModel.described(model, LIMITS, Chip(100, ADA))
    return segmented(StepBuilder(described, shape).build(), model.activation)


def segments(directory: Path, config: dict[str, Any], shape: Shape) -> list[Segment]:
    return [item for item in segmented_step(directory, config, shape) if isinstance(item, Segment)]
