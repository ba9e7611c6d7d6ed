"""The kernels that a model's steps launch, for tests that compile or run some of them."""

from __future__ import annotations

from collections.abc import Sequence

from gpu_backend.cuda.chip import HOPPER, Chip, arch_of
from gpu_backend.cuda.compile import source_root
from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.instances import compile_instances
from gpu_backend.element import compute_element
from gpu_backend.engines.base import Limits
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.kernels import NAMESPACE, Kernels, activation_define
from gpu_backend.engines.native.lowering import kernel_names, lowered_steps
from gpu_backend.models.abi import Activation
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
    """The same as compile_instances takes them."""
    return [NAMESPACE + name for name in sorted(lowered_kernels(config))]


def assert_compiled(names: Sequence[str], activation: Activation = Activation.SILU) -> None:
    """As an engine has them compiled, so that what engines of other tests have compiled is there."""
    source, defines = source_root() / "kernels" / "engine.cu", activation_define(activation)
    compiled = compile_instances(source, arch_of(HOPPER), names, defines)
    assert set(compiled) == set(names)
    assert all(symbol.encode() in cubin for cubin, symbol in compiled.values())


def open_kernels(device: Device, config: Model, *others: str) -> Kernels:
    """The kernels of the model, and `others`."""
    names = {*lowered_kernels(config, device.n_multiprocessors), *others}
    return Kernels(device.arch, names, compute_element(config.dtype))
