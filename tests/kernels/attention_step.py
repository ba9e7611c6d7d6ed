"""A step's queries and caches for tests of attention, and what the CPU reference makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from halves import NAN, TOLERANCE, Halves, assert_close, floats, random
from reference_ops import Floats, StepData

from gpu_backend.kernel_abi.prefill_plan import PrefillUnit
from gpu_backend.models.fp8 import from_fp8, to_fp8

LONG = {"max_context": 512, "total_pages": 256}
FP8_NAN = 0x7F
UNIT_WORDS = PrefillUnit.itemsize // 4
HALVES = (0.0, 0.0)  # the scales of keys and values in a cache that is not in fp8
FP8 = (0.75, 0.004)  # values reach beyond what the second allows


class Attention:
    """Random queries and caches for a step; cells of the cache that no row uses hold NaN, `none`.

    `after_rope` is qkv as attention of prompts finds it: beside a cache in fp8, in float16.
    """

    def __init__(
        self,
        chunks: Sequence[tuple[int, int, int]],
        heads: int,
        kv_heads: int,
        head_dim: int,
        scales: tuple[float, float] = HALVES,
        **sizes: Any,
    ) -> None:
        self.arrays = StepData(chunks, **sizes)
        self.shape = (heads, kv_heads, head_dim)
        self.n_tokens = len(self.arrays.token_sequence)
        page_size, n_pages = int(self.arrays.tables["page_size"]), sizes["total_pages"]
        self.qkv = random(self.n_tokens, heads + 2 * kv_heads, head_dim)
        halves = random(2, n_pages, kv_heads, page_size, head_dim, seed=1, scale=2)
        self.scales, self.cache, none = scales, halves, NAN
        if scales != HALVES:
            pairs = zip(floats(halves), scales, strict=True)
            self.cache, none = np.stack([to_fp8(x / np.float32(scale)) for x, scale in pairs]), FP8_NAN
        self.none, self.caches = np.array(none, self.cache.dtype), list(self.cache)
        used = np.zeros((n_pages, page_size), bool)
        for row, _, end in chunks:
            positions = np.arange(end)
            used[self.arrays.block_table[row, positions // page_size], positions % page_size] = True
        for cache in self.caches:
            cache.transpose(0, 2, 1, 3)[~used] = self.none
        if scales != HALVES:
            self._leave_keys_and_values(chunks, page_size)
        self.out = np.full((self.n_tokens, heads, head_dim), 0x40E0, np.uint16)  # 7
        self.sinks: Halves | None = None  # [heads]
        self.after_rope = self.qkv
        if scales != HALVES:
            self.after_rope = floats(self.qkv).astype(np.float16).view(np.uint16)
        self.arguments = (self.arrays.step_set, self.arrays.tables, self.after_rope, *self.caches, *scales)

    def _leave_keys_and_values(self, chunks: Sequence[tuple[int, int, int]], page_size: int) -> None:
        """In qkv, as RoPE does beside a cache in fp8."""
        heads, kv_heads, _ = self.shape
        token = 0
        for row, begin, end in chunks:
            positions = np.arange(begin, end)
            pages, tokens = (
                self.arrays.block_table[row, positions // page_size],
                slice(token, token + end - begin),
            )
            for side, cache in enumerate(self.caches):
                first = heads + side * kv_heads
                cells = cache[pages, :, positions % page_size]
                self.qkv[tokens, first : first + kv_heads] = from_fp8(cells).view(np.uint32) >> 16  # exact
            token += end - begin

    def values(self) -> list[Floats]:
        """What the cache holds of keys and of values."""
        if self.scales == HALVES:
            return [floats(cache) for cache in self.caches]
        pairs = zip(self.caches, self.scales, strict=True)
        return [from_fp8(cache) * np.float32(scale) for cache, scale in pairs]

    @property
    def float_sinks(self) -> Floats | None:
        return None if self.sinks is None else floats(self.sinks)

    def check(self, window: int = 0) -> None:
        heads, kv_heads, head_dim = self.shape
        expected = np.full((self.n_tokens, heads, head_dim), 7, np.float32)
        inputs = [floats(self.qkv), *self.values()]
        self.arrays.call(
            "attention", *inputs, expected, heads, kv_heads, head_dim, window, self.float_sinks, self.n_tokens
        )
        assert_close(floats(self.out), expected, 2 * TOLERANCE)
