"""How much GPU memory a model takes, and how many KV pages fit beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpu_backend.arithmetic import ceil_div
from gpu_backend.cuda.chip import Chip
from gpu_backend.element import compute_element
from gpu_backend.engines.base import MIXED_SHARE, MIXED_TOKENS, Limits, Shape
from gpu_backend.engines.graph_grid import FINEST_STEP
from gpu_backend.engines.native.lowering import (
    OWN_KERNELS,
    Lowering,
    LowerStep,
    buffer_bytes,
    lower_step,
    lowered_steps,
)
from gpu_backend.engines.native.model import kv_cache, matrix_of
from gpu_backend.models.description import Model
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.costs import FP8_SPEED
from gpu_backend.ops.gpu import H200

LAYER_S = 60e-6  # of a layer of a prefill step, however few its tokens: its kernels' starts and ends
SMALLEST_CONTEXT = 512  # tokens of KV cache without which a model is not worth loading
RESERVE_BYTES = 1 << 30  # graphs (up to 2 MB each), modules, the GEMM library, its workspace and its clock


def page_bytes(config: Model, limits: Limits) -> int:
    """Keys and values of a page's tokens, all layers."""
    return kv_cache(config, limits).page_bytes


def weight_bytes(config: Model) -> int:
    """All weights as the engine has them, scales included."""
    element = compute_element(config.dtype)
    return sum(matrix_of(weight, element).n_bytes for weight in config.weights())


def activation_bytes(
    config: Model, limits: Limits, shapes: Sequence[Shape], chip: Chip, lower: LowerStep = lower_step
) -> dict[str, int]:
    """Bytes of each buffer that the steps of all shapes share."""
    return buffer_bytes(lowered_steps(config, limits, tuple(shapes), chip, lower))


def mixed_share(config: Model) -> int:
    """Prompt tokens that a mixed step should have: beside those that decode, as many as a layer multiplies
    while its weights are read, or while its kernels start and end.

    More take longer; fewer save little, and have a prompt take more steps.
    """
    layers = config.layers
    layer = next((layer for layer in layers if layer.router), layers[0])
    element, read = compute_element(config.dtype), (layer.qkv, layer.o, layer.gate_up, layer.down)
    read_bytes = sum(matrix_of(weight, element).n_bytes for weight in read)
    layer_s = max(read_bytes / H200.read_bytes_s, LAYER_S)
    in_fp8 = any(isinstance(form, ScaleForm) for form in config.scale_forms)
    rate = H200.half_flops * (FP8_SPEED if in_fp8 else 1)
    tokens = layer_s * rate / (2 * layer.multiplied_elements(config.experts))
    return min(MIXED_TOKENS, max(MIXED_SHARE, FINEST_STEP * int(tokens / FINEST_STEP)))


def with_mixed_share(wanted: Limits, config: Model) -> Limits:
    """`wanted` with the engine's choice where it leaves it to the engine."""
    return replace(wanted, mixed_share=wanted.mixed_share or mixed_share(config))


@dataclass(frozen=True)
class Needs:
    """Bytes of GPU memory that serving a model takes."""

    weights: int
    kv_cache: int
    activations: int

    @property
    def total(self) -> int:
        return self.weights + self.kv_cache + self.activations + RESERVE_BYTES

    def check(self, room: int, free_bytes: int) -> None:
        """Raises ValueError, with the numbers, unless all of it fits into `room` of what is free."""
        if self.total > room:
            raise ValueError(
                f"the model does not fit: weights {self.weights / 1e9:.1f} GB + KV cache of at least "
                f"{self.kv_cache / 1e9:.1f} GB + activations {self.activations / 1e9:.1f} GB + graphs and "
                f"libraries {RESERVE_BYTES / 1e9:.1f} GB = {self.total / 1e9:.1f} GB, and of "
                f"{free_bytes / 1e9:.1f} GB of free GPU memory {room / 1e9:.1f} GB may be used"
            )


def needs(
    config: Model,
    limits: Limits,
    shapes: Sequence[Shape],
    chip: Chip,
    kv_bytes: int,
    lowering: Lowering = OWN_KERNELS,
) -> Needs:
    """What `config` takes with `kv_bytes` of KV cache."""
    sizes = activation_bytes(config, limits, shapes, chip, lowering.lower)
    return Needs(weight_bytes(config), kv_bytes, sum(sizes.values()) + (lowering.scratch_bytes or 0))


def pages_that_fit(
    config: Model,
    limits: Limits,
    shapes: Sequence[Shape],
    free_bytes: int,
    chip: Chip,
    fraction: float = 0.9,
    lowering: Lowering = OWN_KERNELS,
) -> int:
    """KV pages that fit into `fraction` of `free_bytes` beside weights and activations.

    Raises ValueError if they do not hold SMALLEST_CONTEXT tokens, or the context where that is less.
    """
    page = page_bytes(config, limits)
    smallest = page * ceil_div(min(limits.max_context, SMALLEST_CONTEXT), limits.page_size)
    room = int(fraction * free_bytes)
    least = needs(config, limits, shapes, chip, smallest, lowering)
    least.check(room, free_bytes)
    return (room - least.total + smallest) // page
