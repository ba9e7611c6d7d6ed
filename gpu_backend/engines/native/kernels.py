"""The instances of kernels/engine.cu that a model's steps launch, compiled and loaded."""

from __future__ import annotations

from collections.abc import Iterable

from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.cuda.driver import Kernel, Module
from gpu_backend.element import Element
from gpu_backend.models.abi import Activation

NAMESPACE = "blink::"


def activation_define(activation: Activation) -> dict[str, str | int]:
    """What kernels/engine.cu is compiled with for a model's activation (kernels/ops/activation.h)."""
    return {"BLINK_ACTIVATION": f"BLINK_{activation.name}"}


class Kernels:
    """The loaded module: kernels["embed_kernel<__half>"].launch(...).

    `names` are those of the instances. `random` is the kernel that fills weights of `element`. All that end
    in an activation have this one.
    """

    def __init__(
        self,
        arch: str,
        names: Iterable[str],
        element: Element,
        activation: Activation = Activation.SILU,
    ) -> None:
        random = f"random_kernel<{element.cpp}>"
        wanted = sorted({random, *names})
        source = source_root() / "kernels" / "engine.cu"
        cubin, symbols = compile_templates(
            source, arch, [NAMESPACE + name for name in wanted], activation_define(activation)
        )
        self._module = Module(cubin)
        self._kernels = {name: self._module.kernel(symbols[NAMESPACE + name]) for name in wanted}
        self.random = self._kernels[random]

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[name]

    def close(self) -> None:
        self._module.close()
