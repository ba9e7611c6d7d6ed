"""Weights of the CUDA engine in GPU memory: from a checkpoint, or random ones of the same shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.model import DeviceLayer, DeviceWeights, matrix_of
from gpu_backend.engines.native.sizing import weight_bytes
from gpu_backend.model.checkpoint import Checkpoint
from gpu_backend.model.config import ModelConfig
from gpu_backend.model.weights import LayerWeights, Weight, model_weights
from gpu_backend.ops.matrix import Matrix

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
        self._element = compute_element(config.dtype)
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
        inv_freq = self._config.inv_freq()
        address = self._memory.allocate(inv_freq.nbytes)
        self._memory.write(address, inv_freq.data)
        embed = self._load(weights.embed)
        layers = tuple(self._load_layer(layer) for layer in weights.layers)
        final_norm = self._load(weights.final_norm)
        head = self._load(weights.head) if weights.head else embed
        self._stream.synchronize()
        angles = Matrix(1, len(inv_freq), Element.FP32, address)
        return DeviceWeights(embed, layers, final_norm, head, angles)

    def _load_layer(self, layer: LayerWeights) -> DeviceLayer:
        stds = {"o": RANDOM_OUTPUT_STD}
        return DeviceLayer(**{name: self._load(w, stds.get(name, RANDOM_STD)) for name, w in layer})

    def _load(self, weight: Weight, random_std: float = RANDOM_STD) -> Matrix:
        matrix = matrix_of(weight, self._element)
        address = self._memory.allocate(matrix.n_bytes)
        if isinstance(self._source, Checkpoint):
            self._upload(self._source, weight, address)  # counts tensor by tensor
        else:
            is_norm = len(weight.shape) == 1
            mean, std = (1.0, 0.0) if is_norm else (0.0, random_std)
            self._seed += 1  # another sequence of numbers for each weight
            enqueue_random(self._kernels, self._stream, address, weight.n_elements, self._seed, mean, std)
            self._count(matrix.n_bytes)
        return replace(matrix, address=address)

    def _count(self, n_bytes: int) -> None:
        self._loaded += n_bytes
        self._progress("weights", self._loaded, self._total)

    def _upload(self, checkpoint: Checkpoint, weight: Weight, address: int) -> None:
        for name in weight.tensors:
            bits = half_bits(checkpoint.tensor(name), checkpoint.dtype(name), self._element.dtype)
            self._memory.write(address, bits.data)
            address += bits.nbytes
            self._count(bits.nbytes)
            checkpoint.release(name)


def enqueue_random(
    kernels: Kernels, stream: Stream, address: int, n: int, seed: int, mean: float, std: float
) -> None:
    """Fills `n` elements of the engine's half type with normally distributed numbers."""
    blocks, threads = (RANDOM_BLOCKS, 1, 1), (RANDOM_THREADS, 1, 1)
    kernels.random.launch(blocks, threads, stream, address, n, seed, mean, std)


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
