"""How skinny GEMMs are cut up: all of the matrix, within what a multiprocessor has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from matmuls import matmul
from shape_model import SHAPES, shape_model

from gpu_backend.cuda.chip import Chip
from gpu_backend.cuda.driver import ALL_SHARED_BYTES
from gpu_backend.engines.native.model import described_weights, target_of
from gpu_backend.kernel_abi.skinny_codes_sm90 import SKINNY_SCALE_BYTES
from gpu_backend.kernel_abi.split_k_reduction_sm90 import FRAGMENT_BYTES
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import ALL, BESIDE_L1_SHARED_BYTES
from gpu_backend.ops.operations import Epilogue, MatMul, Role
from gpu_backend.ops.skinny_cut import (
    CODE_PANELS,
    FEW_ROWS,
    GROUP,
    HIGH_CODE_ROWS,
    HIGH_TILE_ROWS,
    SKINNY_COLUMNS,
    SKINNY_MAX_ROWS,
    SKINNY_MAX_STAGES,
    SKINNY_PANEL,
    TILE_ROWS,
    SkinnyCut,
    possible_cuts,
    skinny_cut,
)
from gpu_backend.ops.skinny_gemm import tiling_of

SHARED_BYTES = 228 << 10  # of a multiprocessor, of which every block costs 1 KiB more


def check(
    cut: SkinnyCut, w_rows: int, output: Epilogue, n_multiprocessors: int, shared: int = SHARED_BYTES
) -> None:
    assert (cut.n_tiles - 1) * cut.tile_rows < w_rows <= cut.n_tiles * cut.tile_rows
    assert cut.tile_rows % 8 == 0
    codes = cut.x_panels == CODE_PANELS
    low = output is Epilogue.ADD or (cut.m <= FEW_ROWS and not codes)
    most = TILE_ROWS[0] if low else HIGH_CODE_ROWS if codes else HIGH_TILE_ROWS
    assert cut.tile_rows <= min(most, GROUP * cut.tiles)
    assert 1 <= cut.x_slots <= cut.w_slots <= SKINNY_MAX_STAGES
    stages = cut.share * -(-cut.n_tiles // cut.clusters(n_multiprocessors - 1))
    assert cut.w_slots >= min(3, stages)  # fewer, and the memory would wait
    assert cut.share * cut.splits * cut.panels * cut.x_panels * SKINNY_PANEL >= cut.n_in
    assert cut.shared_bytes + 1024 <= shared
    clusters = cut.clusters(n_multiprocessors - 1)
    assert clusters * cut.splits <= n_multiprocessors - 1  # one is the scheduler's
    assert cut.splits == 1 or clusters == cut.n_tiles  # a cluster has one tile
    if cut.splits > 2:
        assert 2 * (cut.shared_bytes + 1024) <= shared


@pytest.mark.parametrize("form", [None, ScaleForm.ROW, GroupForm(Codes.INT4, 128)])
@pytest.mark.parametrize("n_multiprocessors", [78, 114, 132])
@pytest.mark.parametrize("divided", [ALL_SHARED_BYTES, BESIDE_L1_SHARED_BYTES])
@pytest.mark.parametrize("name", sorted(path.stem for path in SHAPES.glob("*.json")))
def test_every_matrix_is_cut_within_the_limits(
    name: str, divided: int, n_multiprocessors: int, form: Form | None, tmp_path: Path
) -> None:
    config = shape_model(name, tmp_path)
    config = quantized(config, form) if form else config
    target = replace(target_of(config, Chip(n_multiprocessors)), shared_bytes=divided)
    for rows in (9, *SKINNY_COLUMNS):
        for op in matmuls(config, rows):
            cut = tiling_of(op, target)
            shared = SHARED_BYTES if op.ends_step else target.shared_bytes
            check(cut, op.weight.rows, op.epilogue, n_multiprocessors, shared)
            assert op.epilogue is not Epilogue.GATED or cut.tile_rows % 16 == 0
            if rows > target.gemv_rows:
                assert choose(op, target).name == "skinny_gemm"


def matmuls(config: Model, rows: int) -> list[MatMul]:
    """With the matrices of the first layer and the head."""
    weights = described_weights(config)
    layer = weights.layers[0]
    made = [
        (Role.QKV, layer.qkv, Epilogue.STORE),
        (Role.O, layer.o, Epilogue.ADD),
        (Role.HEAD, weights.head, Epilogue.STORE_FP32),
    ]
    if layer.router:
        made.append((Role.ROUTER, layer.router, Epilogue.STORE_FP32))
    else:
        made += [(Role.GATE_UP, layer.gate_up, Epilogue.GATED), (Role.DOWN, layer.down, Epilogue.ADD)]
    return [
        replace(
            matmul(role, rows, of.columns, of.rows // (2 if role is Role.GATE_UP else 1), epilogue), weight=of
        )
        for role, of, epilogue in made
    ]


@pytest.mark.parametrize(("n_in", "n_out"), [(8, 8), (200, 1001), (64, 16), (72, 40)])
def test_small_matrices_have_no_more_blocks_than_stages(n_in: int, n_out: int) -> None:
    cut = skinny_cut(SKINNY_MAX_ROWS, n_in, n_out, Epilogue.STORE_FP32, 132)
    check(cut, n_out, Epilogue.STORE_FP32, 132)
    assert cut.splits <= max(1, 2 * -(-n_in // 64))
    assert cut.shared_bytes <= ALL.small


@pytest.mark.parametrize("rows", SKINNY_COLUMNS)
@pytest.mark.parametrize(("n_in", "n_out"), [(2744, 1024), (1000, 2048), (4104, 4096), (200, 6144)])
def test_columns_that_do_not_divide_evenly_are_all_read(n_in: int, n_out: int, rows: int) -> None:
    check(skinny_cut(rows, n_in, n_out, Epilogue.ADD, 132), n_out, Epilogue.ADD, 132)


def test_tiles_are_high_where_x_weighs_more_than_an_even_end() -> None:
    """Llama-3-8B's gate_up: two turns of the same, or, for more than 32 rows of x, fewer tiles."""
    assert skinny_cut(32, 4096, 14336, Epilogue.GATED, 132).n_tiles == 256
    assert skinny_cut(33, 4096, 14336, Epilogue.GATED, 132).tile_rows == TILE_ROWS[0]


def test_tiles_are_higher_where_many_blocks_would_be_idle() -> None:
    """Qwen3-8B's gate_up has 192 tiles of 128 rows for 131 blocks; of 192 rows no block has more than one. An
    addition's squares have no room for higher tiles."""
    assert skinny_cut(33, 4096, 12288, Epilogue.GATED, 132).n_tiles == 128
    assert skinny_cut(33, 5120, 25600, Epilogue.GATED, 132).tile_rows == 208
    assert skinny_cut(33, 4096, 24576, Epilogue.ADD, 132).tile_rows == TILE_ROWS[0]


def test_few_rows_a_block_are_a_cluster() -> None:
    """Llama-3.2-1B's o has 16 rows a multiprocessor, Llama-3-8B's gate_up 219."""
    assert skinny_cut(32, 2048, 2048, Epilogue.ADD, 132).splits == 4
    assert skinny_cut(32, 4096, 14336, Epilogue.GATED, 132).splits == 1


def test_fp8_is_in_small_clusters_with_wide_stages() -> None:
    """Llama-3-8B's down, of any number of rows: clusters of four would leave room for narrow stages alone."""
    few = skinny_cut(32, 14336, 4096, Epilogue.ADD, 132, x_panels=2)
    many = skinny_cut(64, 14336, 4096, Epilogue.ADD, 132, x_panels=2)
    assert (few.splits, few.panels) == (2, 4)
    assert (many.splits, many.panels) == (2, 2)


def test_the_widest_stages_of_fp8_have_enough_of_x() -> None:
    """Llama-3-8B's gate_up: beside its tiles of 112 rows there is room for two slots of x."""
    cut = skinny_cut(16, 4096, 14336, Epilogue.GATED, 132, x_panels=2)
    assert (cut.tile_rows, cut.panels, cut.x_slots) == (112, 2, 4)


@pytest.mark.parametrize("rows", [1, 32, 33])
def test_two_tiles_of_codes_become_one(rows: int) -> None:
    """Llama-3-8B's gate_up, whose blocks would have two. Of three tiles, the third would be alone in a high
    one, half of which is converted for nothing."""
    cut = skinny_cut(rows, 4096, 14336, Epilogue.GATED, 132, x_panels=CODE_PANELS)
    assert (cut.n_tiles, cut.tile_rows) == (128, 224)
    odd = skinny_cut(rows, 4096, 20480, Epilogue.GATED, 132, x_panels=CODE_PANELS)
    assert odd.tile_rows <= TILE_ROWS[0]


def test_many_rows_of_fp8_split_k_sooner() -> None:
    """Llama-3-8B's qkv: blocks of 48 rows of w would read more of x than of w."""
    assert skinny_cut(32, 4096, 6144, Epilogue.STORE, 132, x_panels=2).splits == 1
    assert skinny_cut(33, 4096, 6144, Epilogue.STORE, 132, x_panels=2).splits == 2


@pytest.mark.parametrize(
    ("rows", "tile_rows", "splits", "scales", "fragments"),
    [
        (16, 48, 1, 4, 2),  # two warpgroups have the same 64 rows, and two fragments of them each
        (16, 112, 1, 8, 6),
        (16, 208, 1, 8, 2),  # a warpgroup keeps a fragment at a time
        (64, 176, 1, 8, 0),
        (32, 64, 2, 4, 0),  # fragments lie where the pipelines were
        (64, 128, 2, 8, 0),
        (64, 128, 4, 4, 0),
    ],
)
def test_codes_have_room_for_scales_and_sums(
    rows: int, tile_rows: int, splits: int, scales: int, fragments: int
) -> None:
    """More than fp8: scales of so many panels of 64 rows, and so many fragments."""
    cut = SkinnyCut(rows, 4096, 4096, tile_rows, -(-4096 // tile_rows), 1, 3, 2, 8, splits, 2)
    of_codes = replace(cut, x_panels=CODE_PANELS, x_slots=1)  # as many bytes of x
    more = scales * SKINNY_SCALE_BYTES + fragments * FRAGMENT_BYTES
    assert of_codes.shared_bytes == cut.shared_bytes + more


@pytest.mark.parametrize("x_panels", [1, 2, CODE_PANELS])
@pytest.mark.parametrize(("output", "n_out"), [(Epilogue.GATED, 14336), (Epilogue.ADD, 4096)])
def test_every_possible_cut_is_within_the_limits(output: Epilogue, n_out: int, x_panels: int) -> None:
    cuts = possible_cuts(50, 4096, n_out, output, 132, x_panels=x_panels)
    assert len(cuts) == len(set(cuts)) > 4
    for cut in cuts:
        check(cut, 2 * n_out if output is Epilogue.GATED else n_out, output, 132)
