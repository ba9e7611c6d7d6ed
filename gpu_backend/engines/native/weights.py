"""Weights of the CUDA engine in GPU memory: from a checkpoint, or random ones of the same shape."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.model import DeviceLayer, DeviceWeights, matrix_of, reaches_of
from gpu_backend.engines.native.quantizer import Quantizer, quantizer_kernel
from gpu_backend.engines.native.random_codes import RandomCodes
from gpu_backend.engines.native.sizing import weight_bytes
from gpu_backend.models.description import Layer, Model, Weight
from gpu_backend.models.fourbit import Grouped, packed, units
from gpu_backend.models.fp8 import in_register_order
from gpu_backend.models.half import half_bits, to_float32
from gpu_backend.models.quantization import GroupForm, ScaleForm
from gpu_backend.models.rope import Rope
from gpu_backend.ops.attention import NO_KV_SCALES, KvScales
from gpu_backend.ops.matrix import Matrix
from gpu_backend.weights.checkpoint import Checkpoint
from gpu_backend.weights.safetensors import CheckpointError

RANDOM_STD = 0.02
RANDOM_OUTPUT_STD = 0.002  # of attention's output matrix
RANDOM_FP8 = "random_fp8_kernel<>"
RANDOM_FP8_STD = 112.0  # of fp8 elements: the largest, 3.5 times that, fit
RANDOM_BLOCKS = 1024
RANDOM_THREADS = 256

Progress = Callable[[str, int, int], None]  # what, done, total: "weights" in bytes, "graphs" in graphs


@dataclass(frozen=True)
class RandomWeights:
    """Weights with mean 0 and standard deviation 0.02, and norms of 1, made on the GPU. Those in fp8 have
    scales that differ by up to a fifth.

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
        config: Model,
        max_context: int,
        source: Checkpoint | RandomWeights,
        progress: Progress,
        kv_fp8: bool = False,
    ) -> None:
        """`max_context`: tokens that a request may have, by which rotations are chosen. `kv_fp8`: the scales
        of a cache in fp8 are needed, too."""
        self._memory = memory
        self._stream = stream
        self._kernels = kernels
        self._config = config
        self._max_context = max_context
        self._element = compute_element(config.dtype)
        self._source = source
        self._progress = progress
        self._kv_fp8 = kv_fp8
        self._loaded = 0  # bytes
        self._total = weight_bytes(config)
        self._seed = source.seed << 32 if isinstance(source, RandomWeights) else 0
        self._random_codes = RandomCodes(memory, self._element.dtype, self._seed)

    def load(self) -> DeviceWeights:
        """Raises CheckpointError, CudaError."""
        with ExitStack() as owned:
            if isinstance(self._source, Checkpoint):
                self._source.check_all(self._config, self._kv_fp8)
                if _rounded(self._config):
                    staging = DeviceMemory(self._memory.device)
                    owned.callback(staging.close)
                    on = self._stream, self._kernels, self._config.dtype
                    self._quantizer = Quantizer(staging, *on)
            return self._load_all()

    def _load_all(self) -> DeviceWeights:
        model = self._config
        self._progress("weights", 0, self._total)
        self._reaches = reaches_of(model, self._load_rope)
        embed = self._load(model.embed)
        layers = tuple(self._load_layer(layer) for layer in model.layers)
        final_norm = self._load(model.final_norm)
        head = self._load(model.head) if model.head else embed
        self._stream.synchronize()
        return DeviceWeights(embed, layers, final_norm, head, tuple(self._reaches.values()))

    def _load_rope(self, rope: Rope) -> int:
        table = rope.table(self._config.head_dim, self._max_context)
        address = self._memory.allocate(table.nbytes)
        self._memory.write(address, table.data)
        return address

    def _load_layer(self, layer: Layer) -> DeviceLayer:
        matrices = {name: self._load(weight, name) for name, weight in layer.weights()}
        reach, scales = self._reaches[layer.rope, layer.window], NO_KV_SCALES
        if isinstance(self._source, Checkpoint) and self._kv_fp8:
            scales = KvScales(*map(self._source.cache_scale, (layer.k_scale, layer.v_scale)))
        return DeviceLayer(reach=reach, kv_scales=scales, **matrices)

    def _load(self, weight: Weight, name: str = "") -> Matrix:
        address = self._memory.allocate(matrix_of(weight, self._element).n_bytes)
        matrix = matrix_of(weight, self._element, address)
        if isinstance(self._source, RandomWeights):
            self._fill(matrix, *random_distribution(weight, name))
        elif matrix.scales is None:
            self._upload(self._source, weight, matrix)
        elif matrix.groups:
            self._upload_codes(self._source, weight, matrix, matrix.groups, matrix.scales)
        elif weight.stored is None:
            self._quantize(self._source, weight, matrix, matrix.scales)
        else:
            self._upload_fp8(self._source, weight, matrix, matrix.scales)
        return matrix

    def _count(self, n_bytes: int) -> None:
        self._loaded += n_bytes
        self._progress("weights", self._loaded, self._total)

    def _fill(self, matrix: Matrix, mean: float, std: float) -> None:
        """With random numbers, another sequence for each weight."""
        self._seed += 1
        on = self._kernels, self._stream
        if matrix.groups:
            self._random_codes.fill(matrix, matrix.groups, std)
        elif matrix.scales is None:
            enqueue_random(*on, matrix.address, matrix.rows * matrix.columns, self._seed, mean, std)
        else:
            enqueue_random_fp8(*on, matrix.address, matrix.rows * matrix.columns, self._seed)
            shape, usual = (matrix.scales.rows, matrix.scales.columns), std / RANDOM_FP8_STD
            scales = np.random.default_rng(self._seed).uniform(0.8 * usual, 1.2 * usual, shape)
            self._memory.write(matrix.scales.address, scales.astype(np.float32).data)
        self._count(matrix.n_bytes)

    def _write_codes(self, part: Grouped, form: GroupForm, address: int, behind: int) -> tuple[int, int]:
        """Returns where the next part belongs. Raises ValueError for scales that halves do not hold."""
        codes, scales = packed(part.codes, form.codes), units(part, form, self._element.dtype)
        self._memory.write(address, codes.data)
        self._memory.write(behind, np.ascontiguousarray(scales).data)
        return address + codes.nbytes, behind + scales.nbytes

    def _upload(self, checkpoint: Checkpoint, weight: Weight, matrix: Matrix) -> None:
        address = matrix.address
        for part, dtype in checkpoint.parts(weight):
            bits = half_bits(part, dtype, self._element.dtype)
            self._memory.write(address, bits.data)
            address += bits.nbytes
            self._count(bits.nbytes)

    def _quantize(self, checkpoint: Checkpoint, weight: Weight, matrix: Matrix, scales: Matrix) -> None:
        """As Checkpoint.fp8_parts does it, to the last bit."""
        assert isinstance(weight.scales, ScaleForm)
        address, behind, wanted = matrix.address, scales.address, self._config.dtype
        for part, dtype in checkpoint.parts(weight):
            wide = wanted == "float32"
            values = to_float32(part, dtype) if wide else half_bits(part, dtype, wanted)
            self._quantizer.write(np.ascontiguousarray(values), weight.scales, address, behind)
            n_bytes = Element.FP32.n_bytes * math.prod(weight.scales.shape(*part.shape))
            address, behind = address + part.size, behind + n_bytes
            self._count(part.size + n_bytes)

    def _upload_fp8(self, checkpoint: Checkpoint, weight: Weight, matrix: Matrix, scales: Matrix) -> None:
        address, behind = matrix.address, scales.address
        for elements, part in checkpoint.fp8_parts(weight):
            self._memory.write(address, in_register_order(elements).data)
            self._memory.write(behind, np.ascontiguousarray(part).data)
            address, behind = address + elements.nbytes, behind + part.nbytes
            self._count(elements.nbytes + part.nbytes)

    def _upload_codes(
        self, checkpoint: Checkpoint, weight: Weight, matrix: Matrix, form: GroupForm, scales: Matrix
    ) -> None:
        address, behind = matrix.address, scales.address
        for part in checkpoint.group_parts(weight):
            try:
                after = self._write_codes(part, form, address, behind)
            except ValueError as error:
                raise CheckpointError(f"{checkpoint.directory}: {weight.tensors[0]} has {error}") from None
            self._count(after[0] - address + after[1] - behind)
            address, behind = after


def loading_kernels(config: Model, source: Checkpoint | RandomWeights) -> set[str]:
    """The instances that WeightLoader launches, beside Kernels.random."""
    if isinstance(source, RandomWeights):
        in_fp8 = any(isinstance(form, ScaleForm) for form in config.scale_forms)
        return {RANDOM_FP8} if in_fp8 else set()
    return {quantizer_kernel(config.dtype, form) for form in _rounded(config)}


def _rounded(config: Model) -> tuple[ScaleForm, ...]:
    """In which forms a checkpoint's weights are rounded to fp8 while they are loaded."""
    if config.quantization is not None:
        return ()
    return tuple(form for form in config.scale_forms if isinstance(form, ScaleForm))


def random_distribution(weight: Weight, name: str) -> tuple[float, float]:
    """Mean and standard deviation of RandomWeights in the weight that a layer calls `name`."""
    if len(weight.shape) == 1 and (not name or name.endswith("_norm")):
        return 1.0, 0.0  # a norm, of the layers or the last
    return 0.0, RANDOM_OUTPUT_STD if name == "o" else RANDOM_STD


def enqueue_random(
    kernels: Kernels, stream: Stream, address: int, n: int, seed: int, mean: float, std: float
) -> None:
    """Fills `n` elements of the engine's half type with normally distributed numbers."""
    blocks, threads = (RANDOM_BLOCKS, 1, 1), (RANDOM_THREADS, 1, 1)
    kernels.random.launch(blocks, threads, stream, address, n, seed, mean, std)


def enqueue_random_fp8(kernels: Kernels, stream: Stream, address: int, n: int, seed: int) -> None:
    """Fills `n` elements of fp8, a multiple of 4, with normally distributed numbers, of RANDOM_FP8_STD."""
    blocks, threads = (RANDOM_BLOCKS, 1, 1), (RANDOM_THREADS, 1, 1)
    kernels[RANDOM_FP8].launch(blocks, threads, stream, address, n // 4, seed, RANDOM_FP8_STD)
