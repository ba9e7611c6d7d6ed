"""Attention of prompts by the kernels of kernels/ops/attention_flash.h."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.engine.activations import Activations
from gpu_backend.engine.native_mixture import Launch
from gpu_backend.engine.sizing import FLASH_ROWS, flash_pack
from gpu_backend.engines.base import Limits
from gpu_backend.models.description import Model

FLASH_THREADS = 384  # kFlashThreads
FLASH_KEYS = 128  # kFlashKeys
FLASH_STAGES = 2  # kFlashStages
FLASH_ATOM = 1024  # bytes: kFlashAtom
PLAN_THREADS = 512  # kPrefillPlanThreads of kernels/ops/prefill_plan.h
GROUP_ROWS = 64  # of a warpgroup, whose queries one copy brings
ROW = 64  # elements of a row in shared memory
CELLS = 8  # rows of an atom: tokens of one head in the cache


class FlashAttention:
    """Enqueues the attention of prompts."""

    def __init__(
        self,
        config: Model,
        limits: Limits,
        activations: Activations,
        kv_cache: int,
        n_multiprocessors: int,
    ) -> None:
        """`activations.qkv` has limits.max_step_tokens tokens. Raises CudaError."""
        heads, head_dim = config.n_heads + 2 * config.n_kv_heads, config.head_dim
        columns = head_dim // ROW
        self._pack = flash_pack(config)  # heads of a token that are rows of one tile
        self._heads = (config.n_heads, config.n_kv_heads)
        self._activations = activations
        self._layer_atoms = limits.total_pages * config.n_kv_heads * limits.page_size // CELLS
        self._grid = (
            n_multiprocessors - 1,
            1,
            1,
        )  # all blocks at once; one multiprocessor is the scheduler's
        self._shared_bytes = flash_shared_bytes(head_dim)
        self._queries = tensor_map(
            activations.qkv,
            (columns, limits.max_step_tokens, heads, ROW),
            (columns, GROUP_ROWS // self._pack, self._pack, ROW),
            (ROW, heads * head_dim, head_dim),
            swizzle=True,
        )
        self._cache = tensor_map(
            kv_cache,
            (2 * config.n_layers * self._layer_atoms, columns, CELLS, ROW),
            (2, columns, CELLS, ROW),
            (CELLS * head_dim, ROW, head_dim),
            swizzle=True,
        )

    def plan(self, launch: Launch, step_set: bytes) -> None:
        """Once a step."""
        unit_tokens = FLASH_ROWS // self._pack
        arguments = (step_set, self._activations.prefill_plan, unit_tokens)
        launch("prefill_plan", (1, 1, 1), (PLAN_THREADS, 1, 1), *arguments)

    def attend(self, launch: Launch, tables: bytes, layer: int, after_decode: bool) -> None:
        """Of the planned units, in layer `layer`. `after_decode`: behind that of rows that decode."""
        keys, act = 2 * layer * self._layer_atoms, self._activations
        inputs = (self._queries, self._cache, tables, act.prefill_plan, act.attention)
        counts = (keys, keys + self._layer_atoms, *self._heads, self._pack, int(after_decode))
        block, shared_bytes = (FLASH_THREADS, 1, 1), self._shared_bytes
        launch("attention_flash", self._grid, block, *inputs, *counts, shared_bytes=shared_bytes)


def flash_shared_bytes(head_dim: int) -> int:
    """FlashShared, and room to align it."""
    tiles = 2 * head_dim * (FLASH_ROWS + 2 * FLASH_STAGES * FLASH_KEYS)
    barriers = 8 * (2 + 4 * FLASH_STAGES)
    return FLASH_ATOM * ceil_div(tiles + barriers, FLASH_ATOM) + FLASH_ATOM
