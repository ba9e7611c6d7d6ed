"""What the CUDA engine captures for steps that verify drafts, and what memory they take."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from gpu_backend.cuda.chip import Chip
from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.explain import explain
from gpu_backend.engines.native.lowering import lowered_steps
from gpu_backend.engines.native.sizing import pages_that_fit
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model
from gpu_backend.ops.attention import Heads
from gpu_backend.ops.decode_attention import sharing_rows, unit_heads
from gpu_backend.ops.gpu import H200

SHAPES = Path(__file__).resolve().parents[3] / "scripts" / "bench" / "shapes"
PLAIN = Limits(24, 2048, 256, 8, page_size=16, total_pages=64)
DRAFTING = replace(PLAIN, max_drafts=3)


@pytest.fixture
def config(tmp_path: Path) -> Model:
    shutil.copy(SHAPES / "llama-3-8b.json", tmp_path / "config.json")
    return read_model(tmp_path)


def test_no_megakernel_serves_a_step_that_verifies(config: Model) -> None:
    """It has one row a sequence, and writes the row's key while others attend."""
    shapes = GraphGrid(DRAFTING).shapes
    steps = lowered_steps(config, DRAFTING, shapes, Chip(132))
    names = {shape: [choice.name for choice in step] for shape, step in zip(shapes, steps, strict=True)}
    verifying = [names[shape] for shape in shapes if shape.verifies]
    assert "megakernel" in names[shapes[0]]
    assert all(of_shape.count("decode_attention") == config.n_layers for of_shape in verifying)
    assert not any("megakernel" in of_shape for of_shape in verifying)


def test_explain_shows_a_step_that_verifies(config: Model) -> None:
    """24 tokens of it are drafts; the keys of 8 rows are read, and multiplied by all."""
    plain, drafting = (explain(config, limits, H200, context=1000) for limits in (PLAIN, DRAFTING))
    assert [step.kind for step in drafting.steps] == [*(step.kind for step in plain.steps), "verify"]
    step = drafting.steps[-1]
    assert (step.tokens, step.load.rows, step.load.drafts) == (32, 8, 24)
    attention = next(row for row in step.rows if row.operation == "DecodeAttention")
    assert len(attention.launches) == 2
    heads = config.n_heads * config.head_dim
    assert attention.flops == pytest.approx(config.n_layers * 4 * 32 * 1001 * heads)
    keys = config.n_layers * 8 * 1001 * 2 * 2 * config.n_kv_heads * config.head_dim
    assert keys < attention.bytes < 1.1 * keys


@pytest.mark.parametrize(
    ("heads", "width", "rows"),
    [
        (Heads(32, 8, 128), 16, 4),
        (Heads(24, 8, 128), 16, 4),
        (Heads(10, 2, 64), 16, 3),
        (Heads(8, 1, 128), 16, 2),
        (Heads(24, 2, 64), 16, 1),  # keys are read once for a row, not twice
        (Heads(64, 2, 64), 16, 1),
        (Heads(16, 8, 128), 8, 4),
        (Heads(8, 8, 64), 8, 8),
        (Heads(8, 2, 256), 8, 2),
        (Heads(16, 1, 256), 8, 1),
    ],
)
def test_rows_share_keys_in_the_units_that_take_more_of_them(heads: Heads, width: int, rows: int) -> None:
    assert (unit_heads(heads, verifies=True), sharing_rows(heads)) == (width, rows)
    assert unit_heads(heads, verifies=False) == 8


def test_their_activations_leave_fewer_pages(config: Model) -> None:
    of_plain, of_drafting = (
        pages_that_fit(config, limits, GraphGrid(limits).shapes, H200.memory_bytes, H200.chip)
        for limits in (PLAIN, DRAFTING)
    )
    assert 0.99 * of_plain < of_drafting < of_plain
