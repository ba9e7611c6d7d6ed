"""The tiling of a skinny GEMM, a matmul of some dozens of rows (kernels/ops/gemm/skinny_gemm_sm90.h).

y [rows][n_out] = x [rows][n_in] w^T. A block computes tiles of rows of w, over k in stages of panels, which
are 128 bytes wide: SKINNY_PANEL columns of halves, twice as many of fp8, or four times as many of codes, for
which a stage has as many times more panels of x. Stages of w and of x come through pipelines in shared
memory, whose places are `slots`.
"""

from __future__ import annotations

import itertools
from dataclasses import astuple, dataclass, replace
from functools import lru_cache

import numpy as np

from gpu_backend.arithmetic import ceil_div
from gpu_backend.kernel_abi.skinny_codes_sm90 import SKINNY_CODE_PANEL, SKINNY_SCALE_BYTES
from gpu_backend.kernel_abi.skinny_pipeline_sm90 import (
    SKINNY_MAX_COLUMNS,
    SKINNY_MAX_STAGES,
    SKINNY_PANEL,
    SKINNY_PIPELINE_START,
    SKINNY_PRODUCERS,
    SKINNY_ROW_BYTES,
    SKINNY_TURN_FRAGMENTS,
)
from gpu_backend.kernel_abi.split_k_reduction_sm90 import FRAGMENT_BYTES
from gpu_backend.kernel_abi.wgmma_sm90 import WARPGROUP
from gpu_backend.ops.gpu import ALL, Rooms
from gpu_backend.ops.operations import Epilogue

SKINNY_COLUMNS = (16, 32, SKINNY_MAX_COLUMNS)  # for so many rows of x there are instances of the kernel
SKINNY_MAX_ROWS = SKINNY_COLUMNS[-1]  # up to so many rows of x the kernel beats cuBLAS
# More rows of x weigh as much as the weights, and a tile then takes long to end.
FEW_ROWS = SKINNY_COLUMNS[-2]
TILE_ROWS = (128, 64)  # the most rows that a tile has, if its stages fit
HIGH_TILE_ROWS = 208  # the same for many rows of x, if lower tiles would leave blocks idle
# The most of codes, of which four warpgroups then convert a quarter each, if a block had two tiles.
HIGH_CODE_ROWS = 2 * TILE_ROWS[0]
LEAST_USED = 0.8  # the share of the blocks' time that tiles of TILE_ROWS must use
FEWEST_ROWS = 40  # of w, which a block should have
FEWEST_FP8_ROWS = 48  # the same of fp8 for many rows of x, which weigh twice as much, in large rooms
MAX_SPLITS = 8  # of k: the blocks of a cluster
GROUP = 64  # rows of w that one wgmma instruction multiplies
PANELS = (4, 2, 1)  # of a stage, the best first: memory delivers neighbouring panels faster together
FEWEST_SLOTS = (3, 2)  # of w and of x, so that the memory never waits
WIDE_X_SLOTS = 3  # of x, with fewer of which the widest stages of fp8 wait for their last panel of x
X_SLOTS = 4  # more slots of x bring nothing
CODE_PANELS = SKINNY_CODE_PANEL // SKINNY_PANEL  # of x for a panel of codes of four bits


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
    def waits(self) -> bool:
        """Whether stages of fp8 are so wide that there are too few of x."""
        return self.x_panels > 1 and self.panels == PANELS[0] and self.x_slots < WIDE_X_SLOTS

    @property
    def columns(self) -> int:
        """The rows of x of the kernel's instance: the fewest that hold m."""
        return next(n for n in SKINNY_COLUMNS if n >= self.m)

    @property
    def threads(self) -> int:
        """The threads of a block, SkinnySplit::kThreads of the instance."""
        return self._warpgroups * WARPGROUP + (WARPGROUP if self._warpgroups == 4 else SKINNY_PRODUCERS)

    @property
    def _several_convert(self) -> bool:
        """Whether several warpgroups share a tile, whose codes they convert."""
        return self.x_panels == CODE_PANELS and self.splits <= 2

    @property
    def _row_groups(self) -> int:
        """Warpgroups that convert weights of a tile, each those of its rows."""
        if self._several_convert:
            return self.tiles if self.tiles <= 2 else 4
        return 2 if self.x_panels > 1 and self.tiles > 1 and self.splits == 1 else 1

    @property
    def _turn_groups(self) -> int:
        """Warpgroups that share the columns of the same rows."""
        return 2 if self._several_convert and self.tiles <= 2 else 1

    @property
    def _warpgroups(self) -> int:
        """That multiply: at least two have many rows, unless k is split."""
        many = self.splits == 1 and self.m > FEW_ROWS
        return max(self._row_groups * self._turn_groups, 2 if many else 1)

    @property
    def _scale_bytes(self) -> int:
        """Of the scales of codes, SkinnyScales::kBytes of the instance."""
        if self.x_panels < CODE_PANELS:
            return 0
        groups = self._row_groups * ceil_div(self.tiles, self._row_groups)
        panels = 4 if self._turn_groups > 1 else 2
        return groups * panels * SKINNY_SCALE_BYTES

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
    def waits_for_x(self) -> bool:
        """Whether a stage of weights in fp8 has no more bytes than its x, so that the memory is idle while x
        comes from L2."""
        return self.x_panels > 1 and self.x_panels * self.columns >= self.tile_rows

    @property
    def shared_bytes(self) -> int:
        stage = self.panels * SKINNY_ROW_BYTES  # a row's bytes
        w, x = self.w_slots * stage * self.tile_rows, self.x_slots * stage * self.x_panels * self.columns
        beyond = SKINNY_ROW_BYTES * (GROUP * self.tiles - self.tile_rows)  # a wgmma reads whole groups
        pipelines = w + max(x, beyond)
        groups = self.columns // 8  # fragments of 64 rows
        front = SKINNY_PIPELINE_START + self._scale_bytes
        if self.splits == 1:
            each = SKINNY_TURN_FRAGMENTS if self._turn_groups > 1 else max(groups // self._warpgroups, 1)
            return front + FRAGMENT_BYTES * each * self._warpgroups + pipelines
        # What other blocks of the cluster send lies in front of the pipelines, and the block's own tile
        # where they were, as all warpgroups that share its columns have it.
        sent = (self.splits - 1) * ceil_div(self.tiles * groups, self.splits)
        kept = self._turn_groups * self.tiles * groups
        return front + FRAGMENT_BYTES * sent + max(pipelines, FRAGMENT_BYTES * kept)


@dataclass(frozen=True)
class _Shape:
    """A matmul that is to be cut, on a GPU."""

    rows: int
    n_in: int
    n_out: int
    output: Epilogue
    n_multiprocessors: int
    x_panels: int

    @property
    def w_rows(self) -> int:
        return 2 * self.n_out if self.output is Epilogue.GATED else self.n_out

    @property
    def k_panels(self) -> int:
        return ceil_div(self.n_in, self.x_panels * SKINNY_PANEL)

    def fewest_rows(self, splits: int) -> int:
        """Of w, which a block should have rather than that more blocks than `splits` split k."""
        fp8 = self.x_panels > 1 and self.rows > FEW_ROWS and splits == 1
        return FEWEST_FP8_ROWS if fp8 else FEWEST_ROWS

    def clusters(self, splits: int) -> int:
        """That are at work at once, on all multiprocessors but the scheduler's."""
        return (self.n_multiprocessors - 1) // splits

    def cut(self, splits: int, room: int, most_panels: int, most_rows: int, even: bool) -> SkinnyCut | None:
        """With tiles of up to `most_rows` rows, `even`: as many as divide the rows among all blocks; None if
        that does not fit the room, or if a cluster would have several tiles."""
        grain = 16 if self.output is Epilogue.GATED else 8
        clusters = self.clusters(splits)
        turns = ceil_div(self.w_rows, clusters * most_rows)  # the tiles of a block
        if turns > 1 and splits > 1:
            return None
        tile_rows = grain * ceil_div(self.w_rows, clusters * turns * grain) if even else most_rows
        panels = min(most_panels, ceil_div(self.k_panels, splits))
        share = ceil_div(ceil_div(self.k_panels, panels), splits)
        stages = share * turns  # of a block
        w_slots, x_slots = (min(stages, n) for n in FEWEST_SLOTS)
        tiles = ceil_div(self.w_rows, tile_rows)
        sizes = (self.rows, self.n_in, self.n_out, tile_rows, tiles)
        tiling = SkinnyCut(*sizes, panels, w_slots, x_slots, share, splits, self.x_panels)
        return _filled(tiling, min(stages, SKINNY_MAX_STAGES), room) if tiling.shared_bytes <= room else None


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
    are the highest ones, of which some blocks get one fewer, unless that leaves too many blocks idle. Of
    codes, where a block would have an even number of tiles, two become one: then four warpgroups have rows
    of their own, and x is read once for both, of which there is more than of codes if it has many rows. If a
    block would have too few rows of w, it would read more of x than of the weights: then a cluster of blocks
    splits k, if the blocks fit their rooms, the shared memory that `rooms` leaves them.

    `x_panels`: of x for a panel of w, 2 for weights in fp8, 4 for codes. Tiles of twice the rows, in clusters
    of four blocks instead of two, would halve what all blocks read of x, from L2. But clusters of four have
    small rooms, where stages have one panel, and that costs more: 64 rows of Llama-3-8B's down in fp8 take
    24.9 us in clusters of two, 31.4 with stages of one panel, and 31.4 in clusters of four (an H100,
    2026-11-26).
    """
    shape = _Shape(rows, n_in, n_out, output, n_multiprocessors, x_panels)
    splits = 1
    while (
        splits < MAX_SPLITS
        and splits * x_panels * SKINNY_PANEL < n_in
        and shape.w_rows * splits < shape.fewest_rows(splits) * (n_multiprocessors - 1)
    ):
        splits *= 2
    while (tiling := _fitting(shape, splits, rooms)) is None:
        splits //= 2
    return tiling


def _fitting(shape: _Shape, splits: int, rooms: Rooms) -> SkinnyCut | None:
    """The tiling with `splits` splits of k: with the widest stages and highest tiles that fit, or None if
    none do."""
    room = rooms.large if splits <= 2 else rooms.small
    heights: tuple[int, ...] = TILE_ROWS
    even, adds = True, shape.output is Epilogue.ADD
    turn = shape.clusters(1) * TILE_ROWS[0]
    if shape.x_panels == 1 and shape.rows > FEW_ROWS and splits == 1 and shape.w_rows >= turn:
        # Reading x costs more than it does that some blocks have a tile fewer. So there are as few tiles as
        # can be, unless many blocks would then be idle. The squares that an addition leaves allow no higher
        # tiles.
        even = not adds and shape.w_rows < LEAST_USED * turn * ceil_div(shape.w_rows, turn)
        heights = (HIGH_TILE_ROWS,) if even else TILE_ROWS[:1]
    if shape.x_panels == CODE_PANELS and splits == 1 and not adds:
        tiles = ceil_div(shape.w_rows, turn)  # of a block
        heights = (HIGH_CODE_ROWS, *TILE_ROWS) if tiles % 2 == 0 else TILE_ROWS
    sizes = list(itertools.product(PANELS, heights))
    if shape.x_panels > 1:  # lower tiles would cost more than narrower stages
        sizes = [(panels, most) for most in heights for panels in PANELS]
    cuts = (shape.cut(splits, room, *size, even) for size in sizes)
    return next((cut for cut in cuts if cut and not cut.waits), None)


def possible_cuts(
    rows: int,
    n_in: int,
    n_out: int,
    output: Epilogue,
    n_multiprocessors: int,
    rooms: Rooms = ALL,
    x_panels: int = 1,
) -> list[SkinnyCut]:
    """As skinny_cut takes them: with every number of splits, height of tiles and width of stages, in both
    rooms; of weights in fp8 also with tiles of the most rows, which leave some blocks idle but read less of
    x. Two blocks in small rooms fit a multiprocessor, so that one requests its weights while that of the
    kernel before ends."""
    shape = _Shape(rows, n_in, n_out, output, n_multiprocessors, x_panels)
    highest = HIGH_CODE_ROWS if x_panels == CODE_PANELS else HIGH_TILE_ROWS
    high = () if output is Epilogue.ADD else (highest,)
    evens = (True, False) if x_panels > 1 else (True,)
    found: dict[SkinnyCut, None] = {}  # each once, in order
    for splits in (1, 2, 4, MAX_SPLITS):
        for room in (rooms.large, rooms.small) if splits <= 2 else (rooms.small,):
            for most_rows, panels, even in itertools.product((*high, *TILE_ROWS), PANELS, evens):
                if cut := shape.cut(splits, room, panels, most_rows, even):
                    found[cut] = None
    return list(found)


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
