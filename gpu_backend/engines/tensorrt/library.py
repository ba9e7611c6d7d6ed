"""The TensorRT library of this machine, and in what its two editions differ.

The full library, `tensorrt`, is on NVIDIA's package index. TensorRT for RTX, `tensorrt_rtx`, is on PyPI: it
has the same Python API, builds plans without a GPU, and serves NVIDIA's graphics cards alone.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from gpu_backend.cuda.chip import Capability
from ringbuffer.version import install

INSTALL_FULL = (
    "install the full TensorRT 10.15 or newer: "
    "pip install --extra-index-url https://pypi.nvidia.com 'tensorrt-cu13>=10.15'"
)
MODULES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")  # the first that can be imported is taken
OLDEST, OLDEST_RTX = "TensorRT 10.15", "TensorRT for RTX 1.7"
INSTALL = f"{install('tensorrt')} (docs/tensorrt.md)"
# By these a library is known to be TensorRT and new enough, before something of it is missing in a start.
NEEDED = (
    "Builder.build_serialized_network",
    "BuilderFlag",
    "ExecutionContextAllocationStrategy.USER_MANAGED",
    "ICudaEngine.device_memory_size_v2",
    "IExecutionContext.execute_async_v3",
    "IExecutionContext.infer_shapes",
    "ILogger.INTERNAL_ERROR",
    "NetworkDefinitionCreationFlag.STRONGLY_TYPED",
    "OnnxParser",
    "OnnxParserFlag.ENABLE_PLUGIN_OVERRIDE",  # as old as the parser's RMSNormalization, which plans have
    "ProfilingVerbosity.DETAILED",
    "Runtime.deserialize_cuda_engine",
)
NEEDED_RTX = (
    "BuilderFlag.REQUIRE_USER_ALLOCATION",
    "ComputeCapability",
    "CudaGraphStrategy.DISABLED",
    "ICudaEngine.create_runtime_config",
    "IRuntimeConfig.create_runtime_cache",
)


class NoLibrary(RuntimeError):
    """TensorRT cannot be imported, or is too old, or there is no onnx; the message says what to install."""


class PlanError(RuntimeError):
    """TensorRT refused a segment; the message has its name and the library's own errors."""


@dataclass(frozen=True)
class Library:
    """`module` is the library's Python module, `rtx` whether it is TensorRT for RTX. `packages` are those it
    is installed by: they tell libraries apart that are of one version, and made for two versions of CUDA."""

    module: Any
    rtx: bool
    packages: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """For messages and keys: "TensorRT for RTX 1.7.1.116"."""
        return f"TensorRT{' for RTX' if self.rtx else ''} {self.module.__version__}"

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the builder. TensorRT for RTX allocates memory beside the context's, which a capture refuses,
        unless it is told not to; the full library does not know the flag."""
        return ("REQUIRE_USER_ALLOCATION",) if self.rtx else ()

    @property
    def settings(self) -> dict[str, Any]:
        """Of the builder's configuration, beside its flags. A plan can tell what it is made of. It is a
        chain, and so has no use for more streams, which each of a thousand contexts would hold."""
        return {"max_aux_streams": 0, "profiling_verbosity": self.module.ProfilingVerbosity.DETAILED}

    def refuses(self, capability: Capability) -> str | None:
        """Why plans of this library do not run on such a GPU; None where they do."""
        if not self.rtx or hasattr(self.module.ComputeCapability, _member(capability)):
            return None
        major, minor = capability
        return f"TensorRT for RTX does not run on compute capability {major}.{minor}; {INSTALL_FULL}"

    def build(self, title: str, graph: bytes, capability: Capability) -> bytes:
        """The plan of an ONNX model, for such a GPU; `title` is for messages. Raises PlanError."""
        if why := self.refuses(capability):
            raise PlanError(why)
        trt, log = self.module, self.log()
        builder = self.made(trt.Builder, log)
        network = self.network(builder, log, title, graph)
        config = builder.create_builder_config()
        for name, value in self.settings.items():
            setattr(config, name, value)
        for flag in self.flags:
            config.set_flag(getattr(trt.BuilderFlag, flag))
        if self.rtx:
            config.num_compute_capabilities = 1
            config.set_compute_capability(getattr(trt.ComputeCapability, _member(capability)), 0)
        plan = builder.build_serialized_network(network, config)
        if plan is None:
            raise PlanError(f"{self.title} does not build the plan of {title}: {'; '.join(log.errors)}")
        return bytes(plan)

    def made(self, kind: Any, log: Any) -> Any:
        """A Builder or Runtime. Raises PlanError where there is none, for want of a driver for example."""
        try:
            return kind(log)
        except TypeError as error:  # "factory function returned nullptr"
            told = "; ".join(log.errors) or error
            raise PlanError(f"{self.title} does not start here: {told}") from error

    def network(self, builder: Any, log: Any, title: str, graph: bytes) -> Any:
        """The ONNX model as a network of the library. Raises PlanError."""
        trt = self.module
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        parser = trt.OnnxParser(network, log)
        if not parser.parse(graph):
            errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
            raise PlanError(f"{self.title} does not parse the plan of {title}: {'; '.join(errors)}")
        return network

    def log(self) -> Any:
        """A logger of the library that keeps errors, and prints nothing."""
        trt = self.module
        base: Any = trt.ILogger

        class Log(base):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.errors: list[str] = []

            def log(self, severity: Any, line: str) -> None:
                if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                    self.errors.append(line)

        return Log()


def _member(capability: Capability) -> str:
    """Of the library's enum ComputeCapability."""
    major, minor = capability
    return f"SM{major}{minor}"


def installed_packages(rtx: bool) -> tuple[str, ...]:
    """The names of an edition's packages: "tensorrt_cu13_libs"."""
    names = {
        (distribution.name or "").lower().replace("-", "_")
        for distribution in importlib.metadata.distributions()
    }
    return tuple(sorted(name for name in names if name.startswith("tensorrt") and ("_rtx" in name) == rtx))


def lacks(module: Any, rtx: bool) -> str | None:
    """The first name that the engine needs and `module` does not have; None where it has all."""
    needed = (*NEEDED, *NEEDED_RTX) if rtx else NEEDED
    return next((name for name in needed if not _has(module, name)), None)


def _has(thing: Any, name: str) -> bool:
    try:
        attrgetter(name)(thing)
    except AttributeError:
        return False
    return True


def load_library() -> Library:
    """The full library where it is installed, else that for RTX. Raises NoLibrary, also without onnx."""
    if importlib.util.find_spec("onnx") is None:
        raise NoLibrary(f"no onnx, which plans are written with: {INSTALL}")
    unfit: list[str] = []
    for name in MODULES:
        try:
            module, rtx = importlib.import_module(name), name != "tensorrt"
        except (ImportError, OSError):  # OSError: its own libraries are not there
            continue
        if not hasattr(module, "__version__"):  # some directory of that name is on Python's path
            continue
        if (missing := lacks(module, rtx)) is None:
            return Library(module, rtx, installed_packages(rtx))
        oldest = OLDEST_RTX if rtx else OLDEST
        unfit.append(f"{name} {module.__version__} has no {missing}, {oldest} has it")
    raise NoLibrary(f"{'; '.join(unfit) or 'no TensorRT'}: {INSTALL}")
