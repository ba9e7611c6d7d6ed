"""The instances of kernels/engine.cu that a model's steps launch, compiled and loaded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from gpu_backend.cuda.compile import compile_linked, source_root
from gpu_backend.cuda.driver import Kernel, Module
from gpu_backend.cuda.instances import compile_instances
from gpu_backend.element import Element
from gpu_backend.models.abi import Activation

NAMESPACE = "blink::"
LINKED = "LinkedProcessors"  # in the names of those that call logits processors


def activation_define(activation: Activation) -> dict[str, str | int]:
    """What kernels/engine.cu is compiled with for a model's activation (kernels/ops/activation.h)."""
    return {"BLINK_ACTIVATION": f"BLINK_{activation.name}"}


def compile_with_processors(
    names: Sequence[str], arch: str, processors: Sequence[bytes]
) -> tuple[bytes, dict[str, str]]:
    """The cubin of kernels/sampler.cu's instances `names`, linked with the LTO-IR of logits processors, and
    the instances' symbols. Raises CompileError, ToolkitError.
    """
    listed = " ".join(f"X({index})" for index in range(len(processors)))
    source, defines = source_root() / "kernels" / "sampler.cu", {"BLINK_PROCESSORS(X)": listed}
    return compile_linked(source, arch, names, processors, defines)


class Kernels:
    """The loaded modules: kernels["embed_kernel<__half>"].launch(...). Each kernel has its own, but for
    those that are linked.

    `names` are those of the instances. `random` is the kernel that fills weights of `element`. All that end
    in an activation have this one. Those that call logits processors are linked with `processors`, as LTO-IR.
    """

    def __init__(
        self,
        arch: str,
        names: Iterable[str],
        element: Element,
        activation: Activation = Activation.SILU,
        processors: Sequence[bytes] = (),
    ) -> None:
        random = f"random_kernel<{element.cpp}>"
        wanted = sorted(NAMESPACE + name for name in {random, *names})
        linked = [name for name in wanted if LINKED in name]
        own = [name for name in wanted if LINKED not in name]
        source = source_root() / "kernels" / "engine.cu"
        self._kernels: dict[str, Kernel] = {}
        compiled = compile_instances(source, arch, own, activation_define(activation))
        modules = [(cubin, {name: symbol}) for name, (cubin, symbol) in compiled.items()]
        if linked:
            modules.append(compile_with_processors(linked, arch, processors))
        with ExitStack() as owned:
            for cubin, symbols in modules:
                module = Module(cubin)
                owned.callback(module.close)
                self._kernels |= {name: module.kernel(symbol) for name, symbol in symbols.items()}
            self._owned = owned.pop_all()
        self.random = self[random]

    def __getitem__(self, name: str) -> Kernel:
        return self._kernels[NAMESPACE + name]

    def close(self) -> None:
        self._owned.close()
