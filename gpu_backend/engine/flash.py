"""The arguments of flash attention (kernels/ops/attention_flash.h)."""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.engine.base import Limits
from gpu_backend.engine.sizing import FLASH_ROWS, ceil_div, flash_pack
from gpu_backend.model.config import ModelConfig

FLASH_THREADS = 384  # kFlashThreads
FLASH_KEYS = 128  # kFlashKeys
FLASH_STAGES = 2  # kFlashStages
FLASH_ATOM = 1024  # bytes: kFlashAtom
PLAN_THREADS = 512  # kPrefillPlanThreads of kernels/ops/prefill_plan.h
GROUP_ROWS = 64  # of a warpgroup, whose queries one copy brings
ROW = 64  # elements of a row in shared memory
CELLS = 8  # rows of an atom: tokens of one head in the cache


@dataclass(frozen=True)
class FlashAttention:
    """Tensor maps of the queries and of the whole cache; `pack` heads of a token are rows of one tile."""

    queries: bytes
    cache: bytes
    pack: int
    layer_atoms: int  # of a layer's keys, or of its values, which come right after them

    @property
    def unit_tokens(self) -> int:
        return FLASH_ROWS // self.pack


def flash_attention(config: ModelConfig, limits: Limits, qkv: int, kv_cache: int) -> FlashAttention:
    """For the buffers at `qkv`, of limits.max_prefill_tokens tokens, and `kv_cache`. Raises CudaError."""
    heads, head_dim = config.n_heads + 2 * config.n_kv_heads, config.head_dim
    pack, columns = flash_pack(config), head_dim // ROW
    queries = tensor_map(
        qkv,
        (columns, limits.max_prefill_tokens, heads, ROW),
        (columns, GROUP_ROWS // pack, pack, ROW),
        (ROW, heads * head_dim, head_dim),
        swizzle=True,
    )
    layer_atoms = limits.total_pages * config.n_kv_heads * limits.page_size // CELLS
    cache = tensor_map(
        kv_cache,
        (2 * config.n_layers * layer_atoms, columns, CELLS, ROW),
        (2, columns, CELLS, ROW),
        (CELLS * head_dim, ROW, head_dim),
        swizzle=True,
    )
    return FlashAttention(queries, cache, pack, layer_atoms)


def flash_shared_bytes(head_dim: int) -> int:
    """FlashShared, and room to align it."""
    tiles = 2 * head_dim * (FLASH_ROWS + 2 * FLASH_STAGES * FLASH_KEYS)
    barriers = 8 * (2 + 4 * FLASH_STAGES)
    return FLASH_ATOM * ceil_div(tiles + barriers, FLASH_ATOM) + FLASH_ATOM
