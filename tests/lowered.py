"""The kernels that a model's steps launch, for tests that compile or run some of them."""

from __future__ import annotations

from gpu_backend.cuda.chip import Chip
from gpu_backend.cuda.driver import Device
from gpu_backend.element import compute_element
from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.kernels import NAMESPACE, Kernels
from gpu_backend.engines.native.lowering import kernel_names, lowered_steps
from gpu_backend.models.description import Model

LIMITS = Limits(
    max_batch=96,
    max_context=2048,
    max_prefill_tokens=2048,
    max_prefill_slots=16,
    page_size=16,
    total_pages=64,
    max_drafts=3,
)


def lowered_kernels(config: Model, multiprocessors: int = 132) -> set[str]:
    """Names as Kernels takes them, of the steps of all shapes."""
    return kernel_names(lowered_steps(config, LIMITS, GraphGrid(LIMITS).shapes, Chip(multiprocessors)))


def lowered_symbols(config: Model) -> list[str]:
    """The same as compile_templates takes them."""
    return [NAMESPACE + name for name in sorted(lowered_kernels(config))]


def open_kernels(device: Device, config: Model, *others: str) -> Kernels:
    """The kernels of the model, and `others`."""
    names = {*lowered_kernels(config, device.n_multiprocessors), *others}
    return Kernels(device.arch, names, compute_element(config.dtype))
