"""Decode attention as a step launches it against softmax in float64: real lengths, both half types, and
a cache in fp8."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from launching import kernels_of, launch
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.tensor_map import cache_map
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.model import heads_of, target_of
from gpu_backend.models.description import Model
from gpu_backend.models.fp8 import from_fp8, to_fp8
from gpu_backend.ops.attention import (
    NO_KV_SCALES,
    DecodeAttention,
    DecodePlan,
    KvScales,
    LayerAttention,
    Reach,
)
from gpu_backend.ops.choice import choose
from gpu_backend.ops.launch import Work
from gpu_backend.ops.matrix import Buffer, KvCache, Matrix

PAGE = 16
EPS = 1e-6
FP8 = KvScales(0.5, 0.02)
TOLERANCE = {"bfloat16": 8e-3, "float16": 1e-3}  # of the output's norm, a head

Floats = NDArray[np.float32]


def to_halves(x: Floats, dtype: str) -> NDArray[np.uint16]:
    if dtype == "float16":
        return x.astype(np.float16).view(np.uint16)
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def to_floats(halves: NDArray[np.uint16], dtype: str) -> Floats:
    if dtype == "float16":
        return halves.view(np.float16).astype(np.float32)
    return (halves.astype(np.uint32) << 16).view(np.float32)


class Rig:
    """Rows at `positions` with random keys and values, whose next token attends. The cache's other cells are
    NaN.

    Each row has a sequence of its own, or that which `sequences` says. Rows of one sequence are neighbours,
    at consecutive positions, and find keys and values before the first of them.
    """

    def __init__(
        self,
        device: Device,
        config: Model,
        positions: Sequence[int],
        window: int | None = None,
        scales: KvScales | None = None,
        sequences: Sequence[int] | None = None,
    ) -> None:
        """`scales`: of a cache in fp8."""
        self.scales = scales
        self.sequences = np.arange(len(positions)) if sequences is None else np.array(sequences)
        self.config, self.positions = config, np.array(positions, np.uint32)
        self.dtype, self.memory, self.stream = config.dtype, DeviceMemory(device), Stream()
        self.element, self.target = compute_element(config.dtype), target_of(config, device.chip)
        rng = np.random.default_rng(0)
        self.window = window
        heads, kv_heads, dim = config.n_heads, config.n_kv_heads, config.head_dim
        n_sequences, pages_per_sequence = int(self.sequences.max()) + 1, max(positions) // PAGE + 1
        self.pages = (
            rng.permutation(n_sequences * pages_per_sequence)
            .astype(np.uint32)
            .reshape(n_sequences, pages_per_sequence)
        )
        shape = (2, n_sequences, kv_heads, max(positions), dim)
        sides = rng.standard_normal(shape, np.float32)
        self.cached = np.stack([self.rounded(x, side) for side, x in enumerate(sides)])
        self.qkv = rng.standard_normal((len(positions), heads + 2 * kv_heads, dim), np.float32)
        self.qkv = to_floats(to_halves(self.qkv, self.dtype), self.dtype)
        self.norms = [
            to_floats(to_halves(rng.standard_normal(dim).astype(np.float32), self.dtype), self.dtype)
            for _ in range(2)
        ]
        self.inv_freq = (10000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)
        works = [work for verifies in (False, True) for work in self.works(0, 0, verifies, 1)]
        self.kernels = kernels_of(device, works, self.element)

    def rounded(self, x: Floats, side: int) -> Floats:
        """Keys, or values if `side` is 1, as the cache holds them."""
        if self.scales is None:
            return to_floats(to_halves(x, self.dtype), self.dtype)
        scale = np.float32(self.scales.value if side else self.scales.key)
        return from_fp8(to_fp8(x / scale)) * scale

    def elements(self, x: Floats) -> NDArray[Any]:
        """Of a cache with these values."""
        if self.scales is None:
            return to_halves(x, self.dtype)
        by = np.array([self.scales.key, self.scales.value], np.float32)
        return to_fp8(x / by.reshape(2, *[1] * (x.ndim - 1)))

    def put(self, array: NDArray[Any]) -> int:
        address = self.memory.allocate(array.nbytes)
        self.memory.write(address, memoryview(np.ascontiguousarray(array)).cast("B"))
        return address

    def halves(self, x: Floats) -> int:
        return self.put(to_halves(x, self.dtype))

    def cache(self) -> NDArray[Any]:
        """Keys and values, each [page][kv_head][PAGE][head_dim]."""
        kv_heads, dim = self.config.n_kv_heads, self.config.head_dim
        elements = self.elements(self.cached)
        none = np.array(0x7FFF if self.scales is None else 0x7F, elements.dtype)
        cache = np.full((2, self.pages.size, kv_heads, PAGE, dim), none)
        for sequence, row in zip(*np.unique(self.sequences, return_index=True), strict=True):
            at = np.arange(self.positions[row])
            cache[:, self.pages[sequence, at // PAGE], :, at % PAGE] = elements[
                :, sequence, :, : len(at)
            ].transpose(2, 0, 1, 3)
        return cache

    def works(self, keys: int, maps: int, verifies: bool, batch_slots: int) -> list[Work]:
        """The plan and attention of a shape."""
        config, total, element = self.config, len(self.positions), self.element
        heads = heads_of(config)
        cached = element if self.scales is None else Element.FP8
        cache = KvCache(1, self.pages.size, PAGE, heads.kv, heads.dim, cached, keys, maps)
        norms = [
            Matrix(1, heads.dim, element, self.halves(norm)) if config.qk_norm else None
            for norm in self.norms
        ]
        qkv, out = (
            Buffer("qkv", total, heads.width, element),
            Buffer("attention", total, heads.q * heads.dim, element),
        )
        table = np.stack([self.inv_freq, np.ones_like(self.inv_freq)], axis=1)
        reach = Reach(0, Matrix(1, heads.dim, Element.FP32, self.put(table)), self.window)
        of = LayerAttention(heads, reach, 0, cache, qkv, out, *norms, EPS, None, self.scales or NO_KV_SCALES)
        plan = DecodePlan(batch_slots, False, heads, reach, verifies)
        ops = plan, DecodeAttention(batch_slots, False, of, verifies)
        return [work for op in ops for work in choose(op, self.target).launches]

    def run(self, rows: Sequence[int]) -> NDArray[np.uint16]:
        """Halves [rows, heads, head_dim] of a step of these rows, in a shape of all."""
        return self.step(rows, self.cache(), len(self.positions))[0]

    def step(
        self, rows: Sequence[int], cache: NDArray[Any], batch_slots: int, verifies: bool = False
    ) -> tuple[NDArray[np.uint16], NDArray[Any]]:
        """The same in a shape of so many batch slots, and what becomes of `cache`."""
        config, total = self.config, len(self.positions)
        keys, step_set, tables = self.put(cache), np.zeros((), abi.StepSet), np.zeros((), abi.Tables)
        head = np.zeros(1, abi.StepHead)
        head["batch_size"] = head["n_decode"] = len(rows)
        order = [*rows, *(row for row in range(total) if row not in rows)]
        sequences = self.sequences[order].astype(np.uint32)
        firsts = [int(np.argmax(sequences == sequence)) for sequence in sequences]
        step_set["head"], step_set["batch_first"] = self.put(head), self.put(np.array(firsts, np.uint32))
        step_set["token_sequence"] = self.put(sequences)
        step_set["token_position"] = self.put(self.positions[order])
        tables["block_table"], tables["page_size"] = self.put(self.pages), PAGE
        tables["pages_per_sequence"] = self.pages.shape[1]
        maps = self.memory.allocate(128)
        self.memory.write(maps, cache_map(keys, cache[0].nbytes, config.head_dim * cache.itemsize))
        works = self.works(keys, maps, verifies, batch_slots)
        sizes = {buffer.name: buffer.n_bytes for work in works for buffer in work.buffers}
        addresses = {name: self.memory.allocate(size) for name, size in sizes.items()}
        addresses |= {
            "qkv": self.halves(self.qkv[order]),
            "attention": self.halves(np.full_like(self.qkv, 7)),
        }
        launch(self.kernels, self.stream, works, addresses, step_set.tobytes(), tables.tobytes())
        n_bytes = 2 * total * config.n_heads * config.head_dim
        result = np.frombuffer(self.memory.read(addresses["attention"], n_bytes), np.uint16)
        assert not any(self.memory.read(addresses["partial"], sizes["partial"]))
        left = np.frombuffer(self.memory.read(keys, cache.nbytes), cache.dtype).reshape(cache.shape)
        return result.reshape(total, config.n_heads, config.head_dim)[: len(rows)], left

    def rotated(self, x: Floats, batch_slot: int, norm: Floats | None) -> NDArray[np.float64]:
        """[heads, head_dim] at the batch slot's position, as the kernel rounds it."""
        y = x.astype(np.float64)
        if norm is not None:
            y = y / np.sqrt((y * y).mean(-1, keepdims=True) + EPS) * norm
        angle = (np.float32(self.positions[batch_slot]) * self.inv_freq).astype(np.float64)
        a, b = np.split(y, 2, -1)
        y = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
        return to_floats(to_halves(y.astype(np.float32), self.dtype), self.dtype).astype(np.float64)

    def reference(self, batch_slot: int) -> NDArray[np.float64]:
        """[heads, head_dim]"""
        heads, kv_heads = self.config.n_heads, self.config.n_kv_heads
        norms = self.norms if self.config.qk_norm else (None, None)
        queries = self.rotated(self.qkv[batch_slot, :heads], batch_slot, norms[0])
        new = self.rotated(self.qkv[batch_slot, heads : heads + kv_heads], batch_slot, norms[1])
        new = self.rounded(new.astype(np.float32), 0)
        position, out = self.positions[batch_slot], []
        for head, query in enumerate(queries):
            kv_head = head // (heads // kv_heads)
            keys = np.vstack([self.cached[0, batch_slot, kv_head, :position], new[kv_head]])
            value = self.qkv[batch_slot, heads + kv_heads + kv_head]
            values = np.vstack([self.cached[1, batch_slot, kv_head, :position], self.rounded(value, 1)])
            seen = slice(-self.window if self.window else None, None)
            keys, values = keys[seen], values[seen]
            score = keys @ query / np.sqrt(self.config.head_dim)
            weight = np.exp(score - score.max())
            out.append(weight @ values / weight.sum())
        return np.array(out)

    def check(self, out: NDArray[np.uint16], batch_slots: Sequence[int]) -> None:
        for batch_slot, got in zip(batch_slots, to_floats(out, self.dtype), strict=True):
            expected = self.reference(batch_slot)
            error = np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
            assert (error < TOLERANCE[self.dtype]).all(), (self.positions[batch_slot], error.max())

    def close(self) -> None:
        self.stream.close()
        self.kernels.close()
        self.memory.close()


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


MIXED = (0, 1, 15, 16, 17, 63, 64, 200, 255, 256, 257, 1000, 1023, 5000)


@pytest.mark.parametrize(
    ("positions", "changes"),
    [
        (MIXED, {"head_dim": 128, "n_heads": 32, "n_kv_heads": 4, "qk_norm": True}),
        (MIXED, {"head_dim": 64, "n_heads": 16, "n_kv_heads": 4, "dtype": "float16"}),
        (MIXED, {"head_dim": 64, "n_heads": 24, "n_kv_heads": 2, "dtype": "float16"}),
        ((999,) * 70, {"head_dim": 128, "n_heads": 8, "n_kv_heads": 2}),
        ((999,) * 70, {"head_dim": 64, "n_heads": 8, "n_kv_heads": 4, "qk_norm": True}),
        ((32767,), {"head_dim": 128, "n_heads": 8, "n_kv_heads": 2}),
    ],
    ids=["normed", "float16", "two groups", "many", "many normed", "long"],
)
@pytest.mark.parametrize("scales", [None, FP8])
def test_decode_attention_is_softmax(
    device: Device, positions: tuple[int, ...], changes: dict[str, Any], scales: KvScales | None
) -> None:
    """E16: a step of one batch slot in the same shape gives the same bits as a step of all."""
    rig = Rig(device, model_config(**changes), positions, scales=scales)
    batch_slots = list(range(len(positions)))
    out = rig.run(batch_slots)
    rig.check(out, batch_slots)
    for batch_slot in batch_slots[:: max(1, len(batch_slots) // 3)]:
        np.testing.assert_array_equal(rig.run([batch_slot])[0], out[batch_slot])
    rig.close()


@pytest.mark.parametrize("window", [1, 16, 70, 1024])
@pytest.mark.parametrize(("head_dim", "scales"), [(96, None), (256, None), (80, FP8), (96, FP8), (256, FP8)])
def test_a_window_hides_what_came_before(
    device: Device, window: int, head_dim: int, scales: KvScales | None
) -> None:
    """Of heads of sizes that only newer models have, too."""
    config = model_config(head_dim=head_dim, n_heads=8, n_kv_heads=2)
    rig = Rig(device, config, MIXED, window, scales)
    batch_slots = list(range(len(MIXED)))
    rig.check(rig.run(batch_slots), batch_slots)
    rig.close()


def test_one_key_among_many_is_found(device: Device) -> None:
    """A key along a head's query takes all of its weight: the output is that key's value, bit for bit."""
    config = model_config(head_dim=128, n_heads=8, n_kv_heads=2)
    rig = Rig(device, config, [32767])
    queries = rig.rotated(rig.qkv[0, : config.n_heads], 0, None)
    for at in (0, 15, 16, 511, 512, 20001, 32751, 32752, 32766):
        before = rig.cached[0, 0, :, at].copy()
        key = 8 * queries[:: config.n_heads // config.n_kv_heads].astype(np.float32)
        rig.cached[0, 0, :, at] = key
        out = rig.run([0])[0, :: config.n_heads // config.n_kv_heads]
        np.testing.assert_array_equal(out, to_halves(rig.cached[1, 0, :, at], rig.dtype))
        rig.cached[0, 0, :, at] = before
    rig.close()
