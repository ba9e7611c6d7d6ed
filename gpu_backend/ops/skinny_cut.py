"""The tiling of a skinny GEMM, a matmul of some dozens of rows (kernels/ops/gemm/skinny_gemm_sm90.h).

y [rows][n_out] = x [rows][n_in] w^T. A block computes tiles of rows of w, over k in stages of panels, which
are 128 bytes wide: SKINNY_PANEL columns of halves, or twice as many of fp8, for which a stage has twice as
many panels of x. Stages of w and of x come through pipelines in shared memory, whose places are `slots`.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.skinny_pipeline_sm90 import (
    SKINNY_MAX_COLUMNS,
    SKINNY_MAX_STAGES,
    SKINNY_PANEL,
    SKINNY_PIPELINE_START,
    SKINNY_PRODUCERS,
    SKINNY_ROW_BYTES,
)
from gpu_backend.kernel_abi.split_k_reduction_sm90 import FRAGMENT_BYTES
from gpu_backend.kernel_abi.wgmma_sm90 import WARPGROUP
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import ALL, Rooms
from gpu_backend.ops.operations import Epilogue

SKINNY_COLUMNS = (16, 32, SKINNY_MAX_COLUMNS)  # for so many rows of x there are instances of the kernel
SKINNY_MAX_ROWS = SKINNY_COLUMNS[-1]  # up to so many rows of x the kernel beats cuBLAS
# More rows of x weigh as much as the weights, and a tile then takes long to end.
FEW_ROWS = SKINNY_COLUMNS[-2]
TILE_ROWS = (128, 64)  # the most rows that a tile has, if its stages fit
HIGH_TILE_ROWS = 208  # the same for many rows of x, if lower tiles would leave blocks idle
FP8_HIGH_TILE_ROWS = 224  # the same of fp8, beside which x weighs twice as much
LEAST_USED = 0.8  # the share of the blocks' time that tiles of TILE_ROWS must use
FEWEST_ROWS = 40  # of w, which a block should have
MAX_SPLITS = 8  # of k: the blocks of a cluster
GROUP = 64  # rows of w that one wgmma instruction multiplies
PANELS = (4, 2, 1)  # of a stage, the best first: memory delivers neighbouring panels faster together
FEWEST_SLOTS = (3, 2)  # of w and of x, so that the memory never waits
X_SLOTS = 4  # more slots of x bring nothing


@dataclass(frozen=True)
class SkinnyCut:
    """The kernel's SkinnyParams, field by field except for `splits`, and what follows from them."""

    m: int
    n_in: int
    n_out: int
    tile_rows: int
    n_tiles: int
    panels: int
    w_slots: int
    x_slots: int
    share: int
    splits: int  # of k: the blocks of a cluster, a template argument of the kernel
    x_panels: int = 1  # of x for a panel of w

    def pack(self) -> bytes:
        """The struct by value."""
        return np.array(astuple(self)[:-2], "<u4").tobytes()

    @property
    def columns(self) -> int:
        """The rows of x of the kernel's instance: the fewest that hold m."""
        return next(n for n in SKINNY_COLUMNS if n >= self.m)

    def threads(self, form: ScaleForm | None) -> int:
        """The threads of a block, SkinnySplit::kThreads of the instance: two warpgroups multiply many rows,
        unless k is split, and convert weights in fp8 of more than GROUP rows, unless their registers would
        keep a second block from a multiprocessor."""
        many = self.m > FEW_ROWS
        converts = form is not None and self.tiles > 1
        if form is ScaleForm.BLOCK and many and self.splits > 2:
            converts = False
        return (2 if converts or (many and self.splits == 1) else 1) * WARPGROUP + SKINNY_PRODUCERS

    @property
    def tiles(self) -> int:
        """The groups of GROUP rows that a tile needs, a template argument of the kernel."""
        return ceil_div(self.tile_rows, GROUP)

    @property
    def n_sums(self) -> int:
        """The number of sums of squares that the matmul leaves for each row of y (E19)."""
        return self.n_tiles * self.tiles

    def clusters(self, n_multiprocessors: int) -> int:
        """How many are launched: a cluster of `splits` blocks has one tile, a block alone may have
        several."""
        return self.n_tiles if self.splits > 1 else min(self.n_tiles, n_multiprocessors)

    @property
    def shared_bytes(self) -> int:
        stage = self.panels * SKINNY_ROW_BYTES  # a row's bytes
        w, x = self.w_slots * stage * self.tile_rows, self.x_slots * stage * self.x_panels * self.columns
        beyond = SKINNY_ROW_BYTES * (GROUP * self.tiles - self.tile_rows)  # a wgmma reads whole groups
        pipelines = w + max(x, beyond)
        groups = self.columns // 8  # fragments of 64 rows
        if self.splits == 1:
            return SKINNY_PIPELINE_START + FRAGMENT_BYTES * groups + pipelines
        # What other blocks of the cluster send lies in front of the pipelines, and the block's own tile
        # where they were.
        sent = (self.splits - 1) * ceil_div(self.tiles * groups, self.splits)
        return (
            SKINNY_PIPELINE_START
            + FRAGMENT_BYTES * sent
            + max(pipelines, FRAGMENT_BYTES * self.tiles * groups)
        )


@lru_cache(maxsize=4096)
def skinny_cut(
    rows: int,
    n_in: int,
    n_out: int,
    output: Epilogue,
    n_multiprocessors: int,
    rooms: Rooms = ALL,
    x_panels: int = 1,
) -> SkinnyCut:
    """The tiling of a matmul of x [rows][n_in] to [rows][n_out] on all multiprocessors but the scheduler's.

    All blocks get equally many rows of w, in one tile unless those are too many. For many rows of x the tiles
    are the highest ones, of which some blocks get one fewer, unless that leaves too many blocks idle. If a
    block would have too few rows of w, it would read more of x than of the weights: then a cluster of blocks
    splits k, if the blocks fit their rooms, the shared memory that `rooms` leaves them.

    `x_panels`: of x for a panel of w, 2 for weights in fp8. What is decided by how much x weighs beside the
    weights is decided by that; how much it weighs for fp8 is not measured yet.
    """
    splits = 1
    w_rows = 2 * n_out if output is Epilogue.GATED else n_out
    fewest = FEWEST_ROWS if rows <= SKINNY_COLUMNS[0] else FEWEST_ROWS * x_panels
    while (
        splits < MAX_SPLITS
        and splits * x_panels * SKINNY_PANEL < n_in
        and w_rows * splits < fewest * (n_multiprocessors - 1)
    ):
        splits *= 2
    sizes = (rows, n_in, n_out, output, n_multiprocessors)
    while (tiling := _fitting(*sizes, splits, rooms, x_panels)) is None:
        splits //= 2
    return tiling


def _fitting(
    rows: int,
    n_in: int,
    n_out: int,
    output: Epilogue,
    n_multiprocessors: int,
    splits: int,
    rooms: Rooms,
    x_panels: int,
) -> SkinnyCut | None:
    """The tiling with `splits` splits of k: with the widest stages and highest tiles that fit, or None if
    none do."""
    silu = output is Epilogue.GATED
    w_rows, grain = (2 * n_out, 16) if silu else (n_out, 8)
    k_panels, clusters = ceil_div(n_in, x_panels * SKINNY_PANEL), (n_multiprocessors - 1) // splits
    room = rooms.large if splits <= 2 else rooms.small
    heights: tuple[int, ...] = TILE_ROWS
    even = True
    if x_panels > 1 and rows > FEW_ROWS and splits == 1 and output is not Epilogue.ADD:
        heights = (FP8_HIGH_TILE_ROWS, *TILE_ROWS)
    elif rows > FEW_ROWS and splits == 1 and w_rows >= (turn := clusters * TILE_ROWS[0]):
        # Reading x costs more than it does that some blocks have a tile fewer. So there are as few tiles as
        # can be, unless many blocks would then be idle. The squares that an addition leaves allow no higher
        # tiles.
        even = output is not Epilogue.ADD and w_rows < LEAST_USED * turn * ceil_div(w_rows, turn)
        heights = (HIGH_TILE_ROWS,) if even else TILE_ROWS[:1]
    sizes = list(itertools.product(PANELS, heights))
    if x_panels > 1:  # lower tiles would cost more than narrower stages
        sizes.sort(key=lambda size: -size[1])
    for most_panels, most_rows in sizes:
        turns = ceil_div(w_rows, clusters * most_rows)  # the tiles of a block
        if turns > 1 and splits > 1:
            continue
        tile_rows = grain * ceil_div(w_rows, clusters * turns * grain) if even else most_rows
        panels = min(most_panels, ceil_div(k_panels, splits))
        share = ceil_div(ceil_div(k_panels, panels), splits)
        stages = share * turns  # of a block
        w_slots, x_slots = (min(stages, n) for n in FEWEST_SLOTS)
        tiles = ceil_div(w_rows, tile_rows)
        tiling = SkinnyCut(
            rows, n_in, n_out, tile_rows, tiles, panels, w_slots, x_slots, share, splits, x_panels
        )
        if tiling.shared_bytes <= room:
            return _filled(tiling, min(stages, SKINNY_MAX_STAGES), room)
    return None


def _filled(tiling: SkinnyCut, most_slots: int, room: int) -> SkinnyCut:
    """The tiling with as many slots in its pipelines as there is room for."""
    while True:
        more = replace(tiling, w_slots=tiling.w_slots + 1)
        if tiling.x_slots < min(tiling.w_slots, X_SLOTS):
            more = replace(tiling, x_slots=tiling.x_slots + 1)
        if more.w_slots > most_slots or more.shared_bytes > room:
            return tiling
        tiling = more


@dataclass(frozen=True)
class Boxes:
    """A tensor of four dimensions and the boxes of it that bulk copies bring, as tensor_map takes them."""

    shape: tuple[int, int, int, int]
    strides: tuple[int, int, int]
    box: tuple[int, int, int, int]


def matrix_boxes(n_in: int, rows: int, box_rows: int) -> Boxes:
    """Panels of `box_rows` rows of a matrix [rows][n_in]."""
    size = rows * n_in
    return Boxes((1, 1, rows, n_in), (size, size, n_in), (1, 1, box_rows, SKINNY_PANEL))


def gate_up_boxes(n_in: int, n_out: int, box_rows: int) -> Boxes:
    """Panels of 8 gate rows and their 8 up rows in turn, of a matrix [2][n_out][n_in]."""
    strides = (8 * n_in, n_out * n_in, n_in)
    return Boxes((n_out // 8, 2, 8, n_in), strides, (box_rows // 16, 2, 8, SKINNY_PANEL))
