"""Compiles kernels on the machine that runs them: NVRTC, and nvJitLink for the scheduler.

Only the scheduler is relocatable code: device-side cudaGraphLaunch needs the device runtime (libcudadevrt),
and relocatable code costs other kernels registers. A sampler with logits processors is linked with them as
intermediate code, which is compiled after that.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_backend.cuda import toolkit
from gpu_backend.cuda.cache import (
    Patience,
    cache_directory,
    drop_oldest,
    load,
    making,
    making_alone,
    mark_used,
    store,
)
from ringbuffer.version import install

SOURCE_SUFFIXES = {".h", ".cuh", ".cu"}
LOG_LINES = 40
CACHE_ENTRIES = 1024  # cubins that are kept, of some 150 KB; the scheduler's have 2 MB
# NVRTC has no __builtin_offsetof, which the layout assertions of ring.h and step.h use.
OFFSETOF = "-D__builtin_offsetof(type,member)=__INTADDR__(&(((type*)0)->member))"


class CompileError(RuntimeError):
    """NVRTC or nvJitLink refused a source; the message holds their log."""


def source_root() -> Path:
    """The directory of kernels/ and ringbuffer/: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parent.parent
    for root in (package / "_sources", package.parent):
        if (root / "kernels" / "step.h").is_file():
            return root
    raise CompileError(f"no kernel sources beside {package}: the installation is incomplete")


def compile_module(
    source: Path, arch: str, defines: Mapping[str, str | int] | None = None, rdc: bool = False
) -> bytes:
    """The cubin of `source`, whose kernels are extern "C", for `arch` ("sm_90a").

    `rdc` compiles relocatable code and links it with the device runtime. Taken from the cache if nothing
    that it depends on has changed. Raises CompileError, ToolkitError.
    """
    return Compilation(source, arch, defines, rdc).compiled()[0]


def is_compiled(source: Path, arch: str, rdc: bool = False) -> bool:
    """Whether compile_module has nothing left to do. Raises CompileError, ToolkitError."""
    return Compilation(source, arch, rdc=rdc).kept() is not None


def compile_templates(
    source: Path, arch: str, names: Sequence[str], defines: Mapping[str, str | int] | None = None
) -> tuple[bytes, dict[str, str]]:
    """Like compile_module, for kernels that are templates: instantiates each of `names` in one module.

    A name is a C++ expression ("blink::embed_kernel<__half>"). Returns the cubin and, for each name, the
    kernel's symbol in it.
    """
    return Compilation(source, arch, defines).compiled(names)


def compile_linked(
    source: Path, arch: str, names: Sequence[str], parts: Sequence[bytes], defines: Mapping[str, str | int]
) -> tuple[bytes, dict[str, str]]:
    """Like compile_templates, for kernels that call the functions of `parts`, which are LTO-IR: NVVM's
    intermediate code. They are optimised together, calls across them inlined, so it costs no registers.
    """
    return Compilation(source, arch, defines, parts=parts).compiled(names)


class Compilation:
    """Compilations of one source that differ in nothing but the templates that they instantiate. What all of
    them depend on is read once, by the constructor. Methods raise CompileError and ToolkitError.
    """

    def __init__(
        self,
        source: Path,
        arch: str,
        defines: Mapping[str, str | int] | None = None,
        rdc: bool = False,
        parts: Sequence[bytes] = (),
    ) -> None:
        self._source, self._arch, self._rdc, self._parts = source, arch, rdc, parts
        self._unkept: dict[Path, tuple[bytes, dict[str, str]]] = {}  # what the cache has not taken
        self._options = [f"--gpu-architecture={arch}", "--std=c++17", "-lineinfo", OFFSETOF]
        self._options += [f"-D{name}={value}" for name, value in sorted((defines or {}).items())]
        self._options += ["--relocatable-device-code=true"] if rdc else []
        self._options += ["-dlto"] if parts else []
        self._reads = _digest_of_sources(source)
        known = (self._options, _nvrtc_version(), [hashlib.sha256(part).hexdigest() for part in parts])
        self._reads.update(repr(known).encode())

    def entry(self, names: Sequence[str] = ()) -> Path:
        """Where the cache has it, or would."""
        digest = self._reads.copy()
        digest.update(repr(list(names)).encode())
        return cache_directory() / f"{self._source.stem}-{digest.hexdigest()[:32]}.cubin"

    def kept(self, names: Sequence[str] = ()) -> tuple[bytes, dict[str, str]] | None:
        """What the cache has: a line of JSON with the symbols, and then the cubin. A damaged entry counts as
        none."""
        path = self.entry(names)
        if path in self._unkept:
            return self._unkept[path]
        if (kept := load(path)) is None:
            return None
        symbols, _, code = kept.partition(b"\n")
        mark_used(path)
        with contextlib.suppress(ValueError):
            told = json.loads(symbols)
            if code and isinstance(told, dict) and set(names) == set(told):
                return code, told
        return None

    def compiled(
        self, names: Sequence[str] = (), patience: Patience | None = None
    ) -> tuple[bytes, dict[str, str]]:
        """From the cache, or compiled and kept. Waits for another process that compiles the same."""
        if (kept := self.kept(names)) is not None:
            return kept
        with making(self.entry(names), patience):
            return self.kept(names) or self._made(names)

    def compile_unless_another_does(self, names: Sequence[str]) -> None:
        """Into the cache, if it is not there and no other process has begun to compile it."""
        if self.kept(names) is None:
            with making_alone(self.entry(names)) as alone:
                if alone and self.kept(names) is None:
                    self._made(names)

    @property
    def keeps(self) -> bool:
        """The cache has taken all that was compiled."""
        return not self._unkept

    def _made(self, names: Sequence[str]) -> tuple[bytes, dict[str, str]]:
        code, lowered = _compile(self._source, self._options, names)
        if self._rdc:
            code = _link_device_runtime(code, self._arch)
        if self._parts:
            code = _link_parts(code, self._parts, self._arch)
        path = self.entry(names)
        if store(path, json.dumps(lowered).encode() + b"\n" + code):
            drop_oldest(path, CACHE_ENTRIES)
        else:  # the next start compiles it again
            self._unkept[path] = code, lowered
        return code, lowered


def _digest_of_sources(source: Path) -> Any:
    """Over every source that could be included: too wide is safe."""
    digest = hashlib.sha256()
    root = source_root()
    files = [
        p for d in ("kernels", "ringbuffer") for p in (root / d).rglob("*") if p.suffix in SOURCE_SUFFIXES
    ]
    for path in sorted({*files, source}):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        digest.update(path.read_bytes())
    return digest


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise toolkit.ToolkitError(f"no cuda-bindings: {install('gpu')}") from error
    return nvrtc


def _nvrtc_version() -> tuple[int, int]:
    nvrtc = _nvrtc()
    result, major, minor = nvrtc.nvrtcVersion()
    _check_nvrtc(result, "nvrtcVersion")
    return major, minor


def _check_nvrtc(result: Any, call: str) -> None:
    if int(result) != 0:
        raise CompileError(f"{call}: {result.name}")


def _compile(source: Path, options: list[str], names: Sequence[str]) -> tuple[bytes, dict[str, str]]:
    nvrtc = _nvrtc()
    paths = [source.parent, source_root(), *toolkit.include_directories()]
    arguments = [option.encode() for option in [*options, *(f"--include-path={path}" for path in paths)]]
    result, program = nvrtc.nvrtcCreateProgram(source.read_bytes(), str(source).encode(), 0, [], [])
    _check_nvrtc(result, "nvrtcCreateProgram")
    try:
        for name in names:
            (result,) = nvrtc.nvrtcAddNameExpression(program, name.encode())
            _check_nvrtc(result, "nvrtcAddNameExpression")
        (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)
        if int(result) != 0:
            raise CompileError(f"{source.name}: {result.name}\n{_log(program)}")
        kind = "LTOIR" if "-dlto" in options else "CUBIN"
        result, size = getattr(nvrtc, f"nvrtcGet{kind}Size")(program)
        _check_nvrtc(result, f"nvrtcGet{kind}Size")
        code = bytearray(size)
        (result,) = getattr(nvrtc, f"nvrtcGet{kind}")(program, code)
        _check_nvrtc(result, f"nvrtcGet{kind}")
        return bytes(code), {name: _lowered(program, name) for name in names}
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _lowered(program: Any, name: str) -> str:
    result, symbol = _nvrtc().nvrtcGetLoweredName(program, name.encode())
    _check_nvrtc(result, f"nvrtcGetLoweredName({name})")
    return str(symbol.decode())


def _log(program: Any) -> str:
    nvrtc = _nvrtc()
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytearray(size)
    nvrtc.nvrtcGetProgramLog(program, log)
    return "\n".join(log.rstrip(b"\0").decode(errors="replace").splitlines()[:LOG_LINES])


def _link_device_runtime(code: bytes, arch: str) -> bytes:
    from cuda.bindings import nvjitlink

    device_runtime = toolkit.library("libcudadevrt.a", "nvidia-cuda-runtime")

    def add(handle: Any) -> None:
        nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, code, len(code), "module")
        nvjitlink.add_file(handle, nvjitlink.InputType.LIBRARY, str(device_runtime))

    return _link([f"-arch={arch}"], add)


def _link_parts(code: bytes, parts: Sequence[bytes], arch: str) -> bytes:
    """-fma=0: nothing is contracted that is not written so, as on the CPU."""
    from cuda.bindings import nvjitlink

    def add(handle: Any) -> None:
        for i, part in enumerate((code, *parts)):
            nvjitlink.add_data(handle, nvjitlink.InputType.LTOIR, part, len(part), f"part {i}")

    return _link([f"-arch={arch}", "-lto", "-lineinfo", "-fma=0"], add)


def _link(options: list[str], add: Callable[[Any], None]) -> bytes:
    """The cubin of what `add` gives the linker. Raises CompileError."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(len(options), options)
    try:
        add(handle)
        nvjitlink.complete(handle)
        linked = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, linked)
        return bytes(linked)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(handle))
        nvjitlink.get_error_log(handle, log)
        raise CompileError(f"nvJitLink: {error}\n{log.decode(errors='replace')}") from error
    finally:
        nvjitlink.destroy(handle)
