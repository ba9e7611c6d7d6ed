"""Prefill attention by warpgroups against its definition: long rows, chunks, both half types, fp8, and units
whose keys are divided into parts."""

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
from gpu_backend.engines.native.lowering import buffer_bytes
from gpu_backend.engines.native.model import heads_of, kv_cache
from gpu_backend.engines.native.weights import half_bits
from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.ops.attention import (
    NO_KV_SCALES,
    Heads,
    KvScales,
    LayerAttention,
    PrefillAttention,
    PrefillPlan,
    Reach,
)
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.prefill_attention import most_parts

NAN, FP8_NAN = 0x7FFF, 0x7F  # the first in both half types
UNTOUCHED = 0x4000
TOKENS, PAGE, LAYERS = 700, 16, 2
Chunks = tuple[tuple[int, int, int], ...]  # row, first position, tokens
CHUNKS: Chunks = ((2, 0, 300), (0, 1500, 250), (3, 127, 1), (1, 64, 129))
FEW_TOKENS, LONG_CONTEXT = 64, 12288
LONG_CHUNKS: Chunks = ((2, 11000, 33), (0, 4500, 20), (3, 127, 1), (1, 2047, 1))
Floats = NDArray[np.float32]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


class Step:
    """A prefill step of `chunks` and some padding, in the second of two layers; cells in no use hold NaN.

    `tokens`: of its shape. `scales`: of a cache in fp8, for which the queries are in float16."""

    def __init__(
        self,
        device: Device,
        dtype: str,
        heads: int,
        kv_heads: int,
        head_dim: int,
        scales: KvScales | None = None,
        chunks: Chunks = CHUNKS,
        tokens: int = TOKENS,
        context: int = 2048,
    ) -> None:
        self.chunks, self.tokens = chunks, tokens
        self.device, self.dtype, self.shape = device, dtype, (heads, kv_heads, head_dim)
        self.scales, queries_in = scales, "float16" if scales else dtype
        self.config = model_config(
            dtype=dtype, n_layers=LAYERS, n_heads=heads, n_kv_heads=kv_heads, head_dim=head_dim
        )
        self.limits = Limits(4, context, tokens, 4, PAGE, 4 * context // PAGE, kv_fp8=scales is not None)
        rng, pages = np.random.default_rng(head_dim), self.limits.total_pages
        self.block_table = rng.permutation(pages).astype(np.uint32).reshape(4, -1)
        qkv = rng.standard_normal((tokens, heads + 2 * kv_heads, head_dim), np.float32)
        cache = rng.standard_normal((LAYERS, 2, pages, kv_heads, PAGE, head_dim), np.float32)
        self.qkv = half_bits(qkv, "float32", queries_in)
        self.cache: NDArray[Any] = half_bits(cache, "float32", dtype)
        if scales:
            by = np.array([scales.key, scales.value], np.float32)[:, None, None, None, None]
            self.cache = to_fp8(cache / by)
        used = np.zeros((pages, PAGE), bool)
        for row, first, n in chunks:
            positions = np.arange(first + n)
            used[self.block_table[row, positions // PAGE], positions % PAGE] = True
        self.cache.transpose(2, 4, 0, 1, 3, 5)[~used] = FP8_NAN if scales else NAN
        if scales:
            self._leave_keys_and_values()

    def _leave_keys_and_values(self) -> None:
        """In qkv, as RoPE does beside a cache in fp8: what the cache holds, as float16."""
        heads, kv_heads, _ = self.shape
        for chunk in self.chunks:
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

    def run(self, chunks: Chunks, blocks: int | None = None) -> NDArray[np.uint16]:
        """Bits of [tokens][heads][head_dim], of the queries that the chunks have in the step's order.
        `blocks`: instead of as many as a step has."""
        memory, stream = DeviceMemory(self.device), Stream()

        def upload(values: NDArray[np.generic]) -> int:
            address = memory.allocate(values.nbytes)
            memory.write(address, np.ascontiguousarray(values).data.cast("B"))
            return address

        ends = np.cumsum([n for _, _, n in chunks])
        starts = ends - [n for _, _, n in chunks]
        positions = np.zeros(self.tokens, np.uint32)
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
        out = np.full((self.tokens, self.shape[0], self.shape[2]), UNTOUCHED, np.uint16)
        addresses = {
            "qkv": upload(self.queries(chunks)),
            "attention": upload(out),
        }
        cache = upload(self.cache)
        element, heads = compute_element(self.dtype), heads_of(self.config)
        target = Target(self.device.n_multiprocessors)
        qkv = Buffer("qkv", self.tokens, heads.width, element)
        to, cells = (
            Buffer("attention", self.tokens, heads.q * heads.dim, element),
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
        plan = choose(PrefillPlan(self.tokens, len(chunks), heads), target)
        attention = choose(PrefillAttention(self.tokens, of, after_decode=False), target)
        assert attention.name == "flash_attention"
        sizes = buffer_bytes([[plan, attention]])
        for name in sizes.keys() - addresses.keys():
            addresses[name] = memory.allocate(sizes[name])
        (launched,) = attention.launches
        assert isinstance(launched, Launch)
        works = [*plan.launches, replace(launched, grid=(blocks, 1, 1)) if blocks else launched]
        kernels = kernels_of(self.device, works, element)
        launch(kernels, stream, works, addresses, step_set.tobytes(), tables.tobytes())
        raw = memory.read(addresses["attention"], out.nbytes)
        if (arrivals := "prefill_arrivals") in sizes:
            assert not any(memory.read(addresses[arrivals], sizes[arrivals])), "zero between kernels"
        for owned in (kernels, memory, stream):
            owned.close()
        return np.frombuffer(raw, np.uint16).reshape(out.shape)

    def queries(self, chunks: Chunks) -> NDArray[np.uint16]:
        """Each chunk's queries come first in the order of `chunks`, then what is left."""
        places = np.concatenate([self.places(chunk) for chunk in chunks])
        return self.qkv[np.concatenate([places, np.setdiff1d(np.arange(self.tokens), places)])]

    def places(self, chunk: tuple[int, int, int]) -> NDArray[np.int64]:
        """Where a chunk's queries are in self.qkv."""
        before = [n for _, _, n in self.chunks[: self.chunks.index(chunk)]]
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
    check(Step(device, dtype, heads, kv_heads, head_dim, scales))


@pytest.mark.parametrize("scales", [None, KvScales(0.5, 0.02)])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(8, 2, 128), (6, 2, 128), (16, 1, 64)])
def test_units_in_parts(
    device: Device, heads: int, kv_heads: int, head_dim: int, scales: KvScales | None
) -> None:
    """A few tokens behind many keys: E13 all the same."""
    assert most_parts(Heads(heads, kv_heads, head_dim), FEW_TOKENS, Target(device.n_multiprocessors)) > 1
    check(Step(device, "bfloat16", heads, kv_heads, head_dim, scales, LONG_CHUNKS, FEW_TOKENS, LONG_CONTEXT))


def check(step: Step) -> None:
    """Its results, and that they have the same bits again, and alone with other blocks."""
    chunks, bound = step.chunks, 6e-3 if step.dtype == "bfloat16" else 8e-4
    out = step.run(chunks)
    n_tokens = sum(n for _, _, n in chunks)
    assert (out[n_tokens:] == UNTOUCHED).all()
    for chunk in chunks:
        got, expected = step.floats(out)[step.places(chunk)], step.expected(chunk)
        error = np.linalg.norm(got - expected) / np.linalg.norm(expected)
        assert error < bound
    np.testing.assert_array_equal(step.run(chunks), out)
    for chunk in chunks[:2]:
        alone = step.run((chunk,), blocks=5)
        np.testing.assert_array_equal(alone[: chunk[2]], out[step.places(chunk)])
