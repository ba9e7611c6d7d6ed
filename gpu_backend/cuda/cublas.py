"""The vendor's GEMM through ctypes (cuBLAS reference, 2.8 and 3.4): cublasGemmEx, cublasLtMatmul."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from gpu_backend.cuda import toolkit
from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.gemm import Gemm

WORKSPACE_BYTES = 32 << 20  # what cuBLAS recommends for Hopper

# cudaDataType and cublasComputeType_t
R_32F, R_16F, R_16BF = 0, 2, 14
COMPUTE_32F = 68
GEMM_DEFAULT = -1
OP_N, OP_T = 0, 1

# cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t, cublasLtReductionScheme_t
DESC_TRANSA, DESC_TRANSB, DESC_SM_COUNT_TARGET = 3, 4, 15
PREF_MAX_WORKSPACE_BYTES, PREF_REDUCTION_SCHEME_MASK = 1, 3
REDUCTION_SCHEME_NONE = 0

STATUS_NOT_SUPPORTED = 15  # cublasStatus_t

ALGORITHM_BYTES = 64
AlgorithmStruct = ctypes.c_ubyte * ALGORITHM_BYTES  # cublasLtMatmulAlgo_t
Algorithm = bytes  # its content, good for the sizes and the version of cuBLAS that it was made for


class HeuristicResult(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", AlgorithmStruct),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


class CublasError(RuntimeError):
    """A cuBLAS call failed; the message names the call and the status."""


def _load() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """libcublas and libcublasLt from NVIDIA's wheel or the system. Raises ToolkitError."""
    try:
        # cublasLt first: the wheel's libcublas finds it by name among the libraries already loaded.
        light = ctypes.CDLL(str(toolkit.library("libcublasLt.so.13", "nvidia-cublas")), ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(toolkit.library("libcublas.so.13", "nvidia-cublas"))), light
    except toolkit.ToolkitError as missing:
        try:
            return ctypes.CDLL("libcublas.so.13"), ctypes.CDLL("libcublasLt.so.13")
        except OSError:
            raise missing from None


class Cublas:
    """A cuBLAS handle bound to one stream and to a caller's workspace.

    The workspace keeps captured GEMMs free of allocation nodes (C3); all GEMMs share it, so they must not run
    concurrently (C4). Grids are planned for `multiprocessors`, or for all there are (0): where one is taken,
    a grid that needs all takes twice as long, as its last blocks run when the others have ended.
    """

    def __init__(self, stream: Stream, workspace: int, multiprocessors: int = 0) -> None:
        self._library, self._light = _load()
        self._stream = ctypes.c_void_p(stream.address)
        self._workspace = ctypes.c_void_p(workspace)
        self.multiprocessors = multiprocessors
        self._one = ctypes.c_float(1)
        self._zero = ctypes.c_float(0)
        self._handle = ctypes.c_void_p()  # cublasLt takes it too
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        try:
            self._configure()
        except CublasError:
            self.close()
            raise

    def _configure(self) -> None:
        # In this order: setting the stream drops the workspace.
        self._call("cublasSetStream_v2", self._handle, self._stream)
        self._call("cublasSetWorkspace_v2", self._handle, self._workspace, ctypes.c_size_t(WORKSPACE_BYTES))
        self._call("cublasSetSmCountTarget", self._handle, self.multiprocessors)

    @property
    def version(self) -> int:
        """Of the library whose algorithms these are."""
        self._light.cublasLtGetVersion.restype = ctypes.c_size_t
        return int(self._light.cublasLtGetVersion())

    def linear(self, gemm: Gemm, half: int, algorithm: Algorithm | None = None) -> None:
        """Enqueues the gemm, by cuBLAS's own choice or by one of `algorithms`.

        `half`, R_16BF or R_16F, is the type of weight and x, and of out if the output is "half".
        """
        weight, x, out = (ctypes.c_void_p(address) for address in (gemm.weight, gemm.x, gemm.out))
        beta = ctypes.byref(self._one if gemm.output == "add" else self._zero)
        # Row-major arrays are the transposes of column-major ones: out^T[n_out][rows] = weight * x^T.
        if algorithm is None:
            self._call(
                "cublasGemmEx",
                self._handle,
                *(OP_T, OP_N, gemm.n_out, gemm.rows, gemm.n_in),
                ctypes.byref(self._one),
                *(weight, half, gemm.n_in),
                *(x, half, gemm.n_in),
                beta,
                *(out, _out_type(gemm, half), gemm.n_out),
                COMPUTE_32F,
                GEMM_DEFAULT,
            )
            return
        with self._described(gemm, half) as (operation, weights, inputs, outputs):
            self._call(
                "cublasLtMatmul",
                *(self._handle, operation, ctypes.byref(self._one)),
                *(weight, weights, x, inputs, beta, out, outputs, out, outputs),
                AlgorithmStruct.from_buffer_copy(algorithm),
                *(self._workspace, ctypes.c_size_t(WORKSPACE_BYTES), self._stream),
            )

    def algorithms(self, gemm: Gemm, half: int, most: int) -> list[Algorithm]:
        """What cuBLAS expects to be fastest for the gemm's sizes, at most `most`, best first.

        None splits k. A second kernel would add up the parts, which costs a step more than a chain of such
        gemms shows: with o and down split, each 4 to 10 % faster by itself, a step of 256 rows of
        Llama-3-8B took 3 % longer. Raises CublasError.
        """
        with self._described(gemm, half) as (operation, weights, inputs, outputs), ExitStack() as owned:
            preference = self._create(owned, "MatmulPreference")
            for attribute, value in (
                (PREF_MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES)),
                (PREF_REDUCTION_SCHEME_MASK, ctypes.c_uint32(REDUCTION_SCHEME_NONE)),
            ):
                self._set("MatmulPreference", preference, attribute, value)
            found, count = (HeuristicResult * most)(), ctypes.c_int()
            status = self._call(
                "cublasLtMatmulAlgoGetHeuristic",
                *(self._handle, operation, weights, inputs, outputs, outputs, preference),
                *(most, found, ctypes.byref(count)),
                allowed=STATUS_NOT_SUPPORTED,
            )
        if status == STATUS_NOT_SUPPORTED:  # it knows of none
            return []
        return [bytes(result.algorithm) for result in found[: count.value] if result.state == 0]

    def accepts(self, gemm: Gemm, half: int, algorithm: Algorithm) -> bool:
        """Whether an algorithm can make the gemm, with the workspace that there is. Raises CublasError."""
        if len(algorithm) != ALGORITHM_BYTES:
            return False
        needs = HeuristicResult()
        with self._described(gemm, half) as (operation, weights, inputs, outputs):
            status = self._light.cublasLtMatmulAlgoCheck(  # it has many ways to say no
                *(self._handle, operation, weights, inputs, outputs, outputs),
                AlgorithmStruct.from_buffer_copy(algorithm),
                ctypes.byref(needs),
            )
        return bool(status == 0) and needs.workspace_bytes <= WORKSPACE_BYTES

    @contextmanager
    def _described(self, gemm: Gemm, half: int) -> Iterator[list[ctypes.c_void_p]]:
        """The operation, and the layouts of weight, x and out, column-major as above."""
        n_out, rows, n_in = gemm.n_out, gemm.rows, gemm.n_in
        with ExitStack() as owned:
            operation = self._create(owned, "MatmulDesc", COMPUTE_32F, R_32F)
            for attribute, value in (
                (DESC_TRANSA, OP_T),
                (DESC_TRANSB, OP_N),
                (DESC_SM_COUNT_TARGET, self.multiprocessors),
            ):
                self._set("MatmulDesc", operation, attribute, ctypes.c_int32(value))
            elements = (half, half, _out_type(gemm, half))
            sizes = ((n_in, n_out), (n_in, rows), (n_out, rows))
            layouts = [
                self._create(
                    *(owned, "MatrixLayout", element, ctypes.c_uint64(height), ctypes.c_uint64(width)),
                    ctypes.c_int64(height),
                )
                for element, (height, width) in zip(elements, sizes, strict=True)
            ]
            yield [operation, *layouts]

    def _create(self, owned: ExitStack, kind: str, *arguments: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self._call(f"cublasLt{kind}Create", ctypes.byref(handle), *arguments)
        owned.callback(self._call, f"cublasLt{kind}Destroy", handle)
        return handle

    def _set(self, kind: str, handle: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"cublasLt{kind}SetAttribute", handle, attribute, ctypes.byref(value), size)

    def _call(self, name: str, *arguments: Any, allowed: int = 0) -> int:
        library = self._light if name.startswith("cublasLt") else self._library
        status = int(getattr(library, name)(*arguments))
        if status not in (0, allowed):
            raise CublasError(f"{name}: cublasStatus_t {status}")
        return status

    def close(self) -> None:
        if self._handle:
            self._call("cublasDestroy_v2", self._handle)
            self._handle = ctypes.c_void_p()


def _out_type(gemm: Gemm, half: int) -> int:
    return half if gemm.output == "half" else R_32F
