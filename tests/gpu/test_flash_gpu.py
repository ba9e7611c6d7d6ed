"""Prefill attention by warpgroups against its definition: long rows, chunks, both half types, and fp8."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launching import kernels_of, launch
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.base import Limits
from gpu_backend.engines.native.model import heads_of, kv_cache
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.kernel_abi.prefill_plan import PrefillUnit
from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.ops.attention import (
    NO_KV_SCALES,
    KvScales,
    LayerAttention,
    PrefillAttention,
    PrefillPlan,
    Reach,
)
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix

NAN, FP8_NAN = 0x7FFF, 0x7F  # the first in both half types
UNTOUCHED = 0x4000
TOKENS, PAGE, LAYERS = 700, 16, 2
CHUNKS = ((2, 0, 300), (0, 1500, 250), (3, 127, 1), (1, 64, 129))  # row, first position, tokens
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class Step:
    """A prefill step of CHUNKS and some padding, in the second of two layers; cells in no use hold NaN.

    `scales`: of a cache in fp8, for which the queries are in float16."""

    def __init__(
        self,
        device: Device,
        dtype: str,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scales: KvScales | None = None,
    ) -> None:
        self.device, self.dtype, self.shape = device, dtype, (heads, kv_heads, head_dim)
        self.scales, queries_in = scales, "float16" if scales else dtype
        self.config = model_config(
            dtype=dtype, n_layers=LAYERS, n_heads=heads, n_kv_heads=kv_heads, head_dim=head_dim
        )
        self.limits = Limits(4, 2048, TOKENS, 4, PAGE, 4 * 2048 // PAGE, kv_fp8=scales is not None)
        rng, pages = np.random.default_rng(head_dim), self.limits.total_pages
        self.block_table = rng.permutation(pages).astype(np.uint32).reshape(4, -1)
        qkv = rng.standard_normal((TOKENS, heads + 2 * kv_heads, head_dim), np.float32)
        cache = rng.standard_normal((LAYERS, 2, pages, kv_heads, PAGE, head_dim), np.float32)
        self.qkv = half_bits(qkv, "float32", queries_in)
        self.cache: NDArray[Any] = half_bits(cache, "float32", dtype)
        if scales:
            by = np.array([scales.key, scales.value], np.float32)[:, None, None, None, None]
            self.cache = to_fp8(cache / by)
        used = np.zeros((pages, PAGE), bool)
        for row, first, n in CHUNKS:
            positions = np.arange(first + n)
            used[self.block_table[row, positions // PAGE], positions % PAGE] = True
        self.cache.transpose(2, 4, 0, 1, 3, 5)[~used] = FP8_NAN if scales else NAN
        if scales:
            self._leave_keys_and_values()

    def _leave_keys_and_values(self) -> None:
        """In qkv, as RoPE does beside a cache in fp8: what the cache holds, as float16."""
        heads, kv_heads, _ = self.shape
        for chunk in CHUNKS:
            row, first, n = chunk
            positions = np.arange(first, first + n)
            pages, cells = self.block_table[row, positions // PAGE], positions % PAGE
            for side in range(2):
                at = heads + side * kv_heads
                elements = from_fp8(self.cache[LAYERS - 1, side][pages, :, cells])
                self.qkv[self.places(chunk), at : at + kv_heads] = half_bits(elements, "float32", "float16")

    def cached(self, side: int) -> Floats:
        """The keys of the layer, or the values."""
        if self.scales:
            scale = self.scales.value if side else self.scales.key
            return from_fp8(self.cache[LAYERS - 1, side]) * np.float32(scale)
        return self.floats(self.cache[LAYERS - 1, side])

    def floats(self, bits: NDArray[np.uint16], dtype: str = "") -> Floats:
        if (dtype or self.dtype) == "float16":
            return bits.view(np.float16).astype(np.float32)
        return (bits.astype(np.uint32) << 16).view(np.float32)

    def run(self, chunks: tuple[tuple[int, int, int], ...], processors: int) -> NDArray[np.uint16]:
        """Bits of [tokens][heads][head_dim], of the queries that the chunks have in CHUNKS' order."""
        memory, stream = DeviceMemory(self.device), Stream()

        def upload(values: NDArray[np.generic]) -> int:
            address = memory.allocate(values.nbytes)
            memory.write(address, np.ascontiguousarray(values).data.cast("B"))
            return address

        ends = np.cumsum([n for _, _, n in chunks])
        starts = ends - [n for _, _, n in chunks]
        positions = np.zeros(TOKENS, np.uint32)
        for (_, first, n), start in zip(chunks, starts, strict=True):
            positions[start : start + n] = np.arange(first, first + n)
        head = np.zeros((), abi.StepHead)
        head["n_tokens"], head["batch_size"] = ends[-1], len(chunks)
        step_set, tables = np.zeros((), abi.StepSet), np.zeros((), abi.Tables)
        step_set["head"] = upload(np.atleast_1d(head).view(np.uint8))
        step_set["token_position"] = upload(positions)
        step_set["batch_sequence"] = upload(np.array([row for row, _, _ in chunks], np.uint32))
        step_set["batch_first"] = upload(starts.astype(np.uint32))
        step_set["batch_last"] = upload((ends - 1).astype(np.uint32))
        tables["block_table"], tables["page_size"] = upload(self.block_table), PAGE
        tables["pages_per_sequence"] = self.limits.pages_per_sequence
        out = np.full((TOKENS, self.shape[0], self.shape[2]), UNTOUCHED, np.uint16)
        addresses = {
            "qkv": upload(self.queries(chunks)),
            "attention": upload(out),
            "prefill_plan": memory.allocate(PrefillUnit.itemsize * (1 + TOKENS + len(chunks))),
        }
        cache = upload(self.cache)
        element, heads, target = compute_element(self.dtype), heads_of(self.config), Target(processors)
        qkv = Buffer("qkv", TOKENS, heads.width, element)
        to, cells = (
            Buffer("attention", TOKENS, heads.q * heads.dim, element),
            kv_cache(self.config, self.limits),
        )
        of = LayerAttention(
            heads,
            Reach(0, Matrix(1, heads.dim, Element.FP32), window=None),
            LAYERS - 1,
            replace(cells, address=cache),
            qkv,
            to,
            q_norm=None,
            k_norm=None,
            eps=1e-6,
            bias=None,
            scales=self.scales or NO_KV_SCALES,
        )
        plan = choose(PrefillPlan(TOKENS, len(chunks), heads), target)
        attention = choose(PrefillAttention(TOKENS, of, after_decode=False), target)
        assert attention.name == "flash_attention"
        works = [*plan.launches, *attention.launches]
        kernels = kernels_of(self.device, works, element)
        launch(kernels, stream, works, addresses, step_set.tobytes(), tables.tobytes())
        raw = memory.read(addresses["attention"], out.nbytes)
        for owned in (kernels, memory, stream):
            owned.close()
        return np.frombuffer(raw, np.uint16).reshape(out.shape)

    def queries(self, chunks: tuple[tuple[int, int, int], ...]) -> NDArray[np.uint16]:
        """Each chunk's queries come first in the order of `chunks`, then what is left."""
        places = np.concatenate([self.places(chunk) for chunk in chunks])
        return self.qkv[np.concatenate([places, np.setdiff1d(np.arange(TOKENS), places)])]

    @staticmethod
    def places(chunk: tuple[int, int, int]) -> NDArray[np.int64]:
        """Where a chunk's queries are in self.qkv."""
        before = [n for _, _, n in CHUNKS[: CHUNKS.index(chunk)]]
        return np.arange(sum(before), sum(before) + chunk[2])

    def expected(self, chunk: tuple[int, int, int]) -> Floats:
        heads, kv_heads, head_dim = self.shape
        row, first, n = chunk
        positions = np.arange(first + n)
        pages, cells = self.block_table[row, positions // PAGE], positions % PAGE
        keys, values = (self.cached(side)[pages, :, cells] for side in range(2))
        queries = self.floats(self.qkv, "float16" if self.scales else self.dtype)[self.places(chunk), :heads]
        hidden = positions[None, :] > first + np.arange(n)[:, None]
        out = np.empty((n, heads, head_dim), np.float32)
        for head in range(heads):
            kv_head = head // (heads // kv_heads)
            scores = queries[:, head] @ keys[:, kv_head].T / np.sqrt(head_dim)
            scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(1, keepdims=True))
            out[:, head] = weights / weights.sum(1, keepdims=True) @ values[:, kv_head]
        return out


@pytest.mark.parametrize("scales", [None, KvScales(0.5, 0.02)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim"), [(8, 2, 128), (6, 2, 128), (16, 1, 64), (4, 4, 64)]
)
def test_prefill_attention(
    device: Device, dtype: str, heads: int, kv_heads: int, head_dim: int, scales: KvScales | None
) -> None:
    """E13: and the same bits alone, and with other blocks at work; padding is not written (E3)."""
    step = Step(device, dtype, heads, kv_heads, head_dim, scales)
    out = step.run(CHUNKS, device.n_multiprocessors)
    n_tokens = sum(n for _, _, n in CHUNKS)
    assert (out[n_tokens:] == UNTOUCHED).all()
    for chunk in CHUNKS:
        got, expected = step.floats(out)[step.places(chunk)], step.expected(chunk)
        error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        assert error < (6e-3 if dtype == "bfloat16" else 8e-4)
    alone = step.run(CHUNKS[1:2], 6)
    np.testing.assert_array_equal(alone[: CHUNKS[1][2]], out[step.places(CHUNKS[1])])
