"""Decode attention as a step launches it against softmax in float64: real lengths, both types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from model_config import model_config
from numpy.typing import NDArray

from gpu_backend import abi
from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.cuda.driver import Device, Module, Stream
from gpu_backend.cuda.kernels import kernel_names
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.tensor_map import cache_map
from gpu_backend.engine.native_step import ATTENTION_SHARED_BYTES, ATTENTION_THREADS, CUT_THREADS
from gpu_backend.engine.native_weights import rope_table
from gpu_backend.engine.sizing import attention_cut
from gpu_backend.model.config import ModelConfig

PAGE = 16
EPS = 1e-6
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
    NaN."""

    def __init__(self, device: Device, config: ModelConfig, positions: Sequence[int], seed: int = 0) -> None:
        self.config, self.positions = config, np.array(positions, np.uint32)
        self.dtype, self.memory, self.stream = config.dtype, DeviceMemory(device), Stream()
        names = [kernel_names(config)[op] for op in ("attention_plan", "attention_stream")]
        cubin, symbols = compile_templates(source_root() / "kernels" / "engine.cu", device.arch, names)
        self.module = Module(cubin)
        self.plan_kernel, self.attention = (self.module.kernel(symbols[name]) for name in names)
        self.n_multiprocessors = device.n_multiprocessors
        rng = np.random.default_rng(seed)
        lanes, heads, kv_heads, dim = len(positions), config.n_heads, config.n_kv_heads, config.head_dim
        pages_per_row = max(positions) // PAGE + 1
        self.pages = rng.permutation(lanes * pages_per_row).astype(np.uint32).reshape(lanes, pages_per_row)
        shape = (2, lanes, kv_heads, max(positions), dim)
        self.cached = to_floats(to_halves(rng.standard_normal(shape, np.float32), self.dtype), self.dtype)
        self.qkv = rng.standard_normal((lanes, heads + 2 * kv_heads, dim), np.float32)
        self.qkv = to_floats(to_halves(self.qkv, self.dtype), self.dtype)
        self.norms = [
            to_floats(to_halves(rng.standard_normal(dim).astype(np.float32), self.dtype), self.dtype)
            for _ in range(2)
        ]
        self.inv_freq = (10000.0 ** (-np.arange(0, dim, 2) / dim)).astype(np.float32)

    def put(self, array: NDArray[Any]) -> int:
        address = self.memory.allocate(array.nbytes)
        self.memory.write(address, memoryview(np.ascontiguousarray(array)).cast("B"))
        return address

    def halves(self, x: Floats) -> int:
        return self.put(to_halves(x, self.dtype))

    def cache(self) -> NDArray[np.uint16]:
        """Keys and values, each [page][kv_head][PAGE][head_dim]."""
        lanes, pages_per_row = self.pages.shape
        kv_heads, dim = self.config.n_kv_heads, self.config.head_dim
        cache = np.full((2, lanes * pages_per_row, kv_heads, PAGE, dim), 0x7FFF, np.uint16)
        halves = to_halves(self.cached, self.dtype)
        for lane, position in enumerate(self.positions):
            at = np.arange(position)
            cache[:, self.pages[lane, at // PAGE], :, at % PAGE] = halves[:, lane, :, :position].transpose(
                2, 0, 1, 3
            )
        return cache

    def run(self, lanes: Sequence[int]) -> NDArray[np.uint16]:
        """Halves [lanes, heads, head_dim] of a step of these lanes, in a shape of all."""
        config, total = self.config, len(self.positions)
        cut, cache = attention_cut(config, total, self.n_multiprocessors), self.cache()
        keys, step_set, tables = self.put(cache), np.zeros((), abi.StepSet), np.zeros((), abi.Tables)
        head = np.zeros(1, abi.StepHead)
        head["n_lanes"] = head["n_decode"] = len(lanes)
        step_set["head"], step_set["lane_last"] = self.put(head), self.put(np.array(lanes, np.uint32))
        step_set["token_row"] = self.put(np.arange(total, dtype=np.uint32))
        step_set["token_position"] = self.put(self.positions)
        tables["block_table"], tables["page_size"] = self.put(self.pages), PAGE
        tables["pages_per_row"] = self.pages.shape[1]
        pieces = max(total * cut.most, self.n_multiprocessors)
        plan, turns = (
            self.memory.allocate(32 * (1 + pieces)),
            self.memory.allocate(4 * total * config.head_dim),
        )
        partial_bytes = 4 * total * config.n_heads * cut.most * (config.head_dim + 4)
        partial, out = self.memory.allocate(partial_bytes), self.halves(np.full_like(self.qkv, 7))
        maps = self.memory.allocate(128)
        self.memory.write(maps, cache_map(keys, cache[0].nbytes, config.head_dim))
        blocks = 1 + -(-total * config.head_dim // 2 // CUT_THREADS)
        self.plan_kernel.launch(
            (blocks, 1, 1), (CUT_THREADS, 1, 1), self.stream, step_set.tobytes(), cut.words, plan,
            self.put(rope_table(self.inv_freq)), turns, config.head_dim, 0, shared_bytes=8 * total,
        )  # fmt: skip
        norms = [self.halves(norm) if config.qk_norm else 0 for norm in self.norms]
        ratio = config.n_heads // config.n_kv_heads
        self.attention.launch(
            (self.n_multiprocessors - 1, 1, 1), (ATTENTION_THREADS, 1, 1), self.stream, tables.tobytes(),
            plan, turns, maps, self.halves(self.qkv), *norms, EPS, keys, keys + cache[0].nbytes, partial,
            out, config.n_kv_heads, ratio, cut.most, 0, 0, shared_bytes=ATTENTION_SHARED_BYTES,
        )  # fmt: skip
        self.stream.synchronize()
        n_bytes = 2 * total * config.n_heads * config.head_dim
        result = np.frombuffer(self.memory.read(out, n_bytes), np.uint16)
        assert not any(self.memory.read(partial, partial_bytes))
        return result.reshape(total, config.n_heads, config.head_dim)[list(lanes)]

    def rotated(self, x: Floats, lane: int, norm: Floats | None) -> NDArray[np.float64]:
        """[heads, head_dim] at the lane's position, as the kernel rounds it."""
        y = x.astype(np.float64)
        if norm is not None:
            y = y / np.sqrt((y * y).mean(-1, keepdims=True) + EPS) * norm
        angle = (np.float32(self.positions[lane]) * self.inv_freq).astype(np.float64)
        a, b = np.split(y, 2, -1)
        y = np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)
        return to_floats(to_halves(y.astype(np.float32), self.dtype), self.dtype).astype(np.float64)

    def reference(self, lane: int) -> NDArray[np.float64]:
        """[heads, head_dim]"""
        heads, kv_heads = self.config.n_heads, self.config.n_kv_heads
        norms = self.norms if self.config.qk_norm else (None, None)
        queries = self.rotated(self.qkv[lane, :heads], lane, norms[0])
        new = self.rotated(self.qkv[lane, heads : heads + kv_heads], lane, norms[1])
        position, out = self.positions[lane], []
        for head, query in enumerate(queries):
            kv_head = head // (heads // kv_heads)
            keys = np.vstack([self.cached[0, lane, kv_head, :position], new[kv_head]])
            values = np.vstack(
                [self.cached[1, lane, kv_head, :position], self.qkv[lane, heads + kv_heads + kv_head]]
            )
            score = keys @ query / np.sqrt(self.config.head_dim)
            weight = np.exp(score - score.max())
            out.append(weight @ values / weight.sum())
        return np.array(out)

    def check(self, out: NDArray[np.uint16], lanes: Sequence[int]) -> None:
        for lane, got in zip(lanes, to_floats(out, self.dtype), strict=True):
            expected = self.reference(lane)
            error = np.linalg.norm(got - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
            assert (error < TOLERANCE[self.dtype]).all(), (self.positions[lane], error.max())

    def close(self) -> None:
        self.stream.close()
        self.module.close()
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
def test_decode_attention_is_softmax(
    device: Device, positions: tuple[int, ...], changes: dict[str, Any]
) -> None:
    """E16: a step of one lane in the same shape gives the same bits as a step of all."""
    rig = Rig(device, model_config(**changes), positions)
    lanes = list(range(len(positions)))
    out = rig.run(lanes)
    rig.check(out, lanes)
    for lane in lanes[:: max(1, len(lanes) // 3)]:
        np.testing.assert_array_equal(rig.run([lane])[0], out[lane])
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
