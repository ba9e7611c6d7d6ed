"""Weights of the CUDA engine in GPU memory: from a checkpoint, or random ones of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.kernels import Kernels, half_dtype
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.cuda.product import HALF_BYTES
from gpu_backend.engine.sizing import weight_bytes
from gpu_backend.model.checkpoint import Checkpoint
from gpu_backend.model.config import ModelConfig
from gpu_backend.model.weights import LayerWeights, Weight, model_weights

RANDOM_STD = 0.02
RANDOM_OUTPUT_STD = 0.002  # of attention's output matrix
RANDOM_BLOCKS = 1024
RANDOM_THREADS = 256

Progress = Callable[[str, int, int], None]  # what, done, total: "weights" in bytes, "graphs" in graphs


@dataclass(frozen=True)
class RandomWeights:
    """Weights with mean 0 and standard deviation 0.02, and norms of 1, made on the GPU.

    What attention puts out has a tenth of that. It averages over a context which the tokens of a prompt
    share; at full size that outgrows what is a token's own, and a router, which in a trained model has work
    for most experts in every prompt, sends all tokens of a prompt to the same few.
    """

    seed: int = 0


@dataclass(frozen=True)
class DeviceLayer:
    """Addresses; matrices are row-major [out][in] in the engine's half type. 0 where the model has none."""

    input_norm: int
    qkv: int
    o: int
    post_norm: int
    gate_up: int
    down: int
    q_norm: int = 0
    k_norm: int = 0
    router: int = 0


@dataclass(frozen=True)
class DeviceWeights:
    embed: int
    layers: tuple[DeviceLayer, ...]
    final_norm: int
    head: int  # the embedding where the model ties them
    rope: int  # [head_dim / 2] RopePair (kernels/ops/rope.h)


class WeightLoader:
    """Allocates and fills one weight after the other; host memory stays bounded by one tensor.

    A checkpoint is checked as a whole, by its headers, before anything is loaded.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        stream: Stream,
        kernels: Kernels,
        config: ModelConfig,
        source: Checkpoint | RandomWeights,
        progress: Progress,
    ) -> None:
        self._memory = memory
        self._stream = stream
        self._kernels = kernels
        self._config = config
        self._source = source
        self._progress = progress
        self._loaded = 0  # bytes
        self._total = weight_bytes(config)
        self._seed = source.seed << 32 if isinstance(source, RandomWeights) else 0

    def load(self) -> DeviceWeights:
        """Raises CheckpointError, CudaError."""
        weights = model_weights(self._config)
        if isinstance(self._source, Checkpoint):
            self._source.check_all(weights)
        self._progress("weights", 0, self._total)
        rope = rope_table(self._config.inv_freq())
        address = self._memory.allocate(rope.nbytes)
        self._memory.write(address, rope.data)
        embed = self._load(weights.embed)
        layers = tuple(self._load_layer(layer) for layer in weights.layers)
        final_norm = self._load(weights.final_norm)
        head = self._load(weights.head) if weights.head else embed
        self._stream.synchronize()
        return DeviceWeights(embed, layers, final_norm, head, address)

    def _load_layer(self, layer: LayerWeights) -> DeviceLayer:
        stds = {"o": RANDOM_OUTPUT_STD}
        return DeviceLayer(**{name: self._load(w, stds.get(name, RANDOM_STD)) for name, w in layer})

    def _load(self, weight: Weight, random_std: float = RANDOM_STD) -> int:
        n = weight.n_elements
        address = self._memory.allocate(HALF_BYTES * n)
        if isinstance(self._source, Checkpoint):
            self._upload(self._source, weight, address)  # counts tensor by tensor
        else:
            is_norm = len(weight.shape) == 1
            mean, std = (1.0, 0.0) if is_norm else (0.0, random_std)
            self._seed += 1  # another sequence of numbers for each weight
            enqueue_random(self._kernels, self._stream, address, n, self._seed, mean, std)
            self._count(HALF_BYTES * n)
        return address

    def _count(self, n_bytes: int) -> None:
        self._loaded += n_bytes
        self._progress("weights", self._loaded, self._total)

    def _upload(self, checkpoint: Checkpoint, weight: Weight, address: int) -> None:
        for name in weight.tensors:
            bits = half_bits(checkpoint.tensor(name), checkpoint.dtype(name), half_dtype(self._config))
            self._memory.write(address, bits.data)
            address += bits.nbytes
            self._count(bits.nbytes)
            checkpoint.release(name)


def rope_table(inv_freq: NDArray[np.float32]) -> NDArray[np.float32]:
    """[head_dim / 2] of RopePair (kernels/ops/rope.h): cosines and sines are not scaled."""
    return np.stack([inv_freq, np.ones_like(inv_freq)], axis=1)


def enqueue_random(
    kernels: Kernels, stream: Stream, address: int, n: int, seed: int, mean: float, std: float
) -> None:
    """Fills `n` elements of the engine's half type with normally distributed numbers."""
    blocks, threads = (RANDOM_BLOCKS, 1, 1), (RANDOM_THREADS, 1, 1)
    kernels["random"].launch(blocks, threads, stream, address, n, seed, mean, std)


def half_bits(tensor: NDArray[Any], dtype: str, wanted: str) -> NDArray[np.uint16]:
    """The tensor's elements as bits of `wanted` ("bfloat16" or "float16"), rounded to nearest even."""
    if dtype == wanted:
        return np.ascontiguousarray(tensor).view(np.uint16)
    values = (tensor.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else tensor
    values = np.ascontiguousarray(values, np.float32)
    if wanted == "float16":
        return values.astype(np.float16).view(np.uint16)
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
