"""The one vendor GEMM that the engine uses: cublasGemmEx through ctypes (cuBLAS reference, section 2.8)."""

from __future__ import annotations

import ctypes
from typing import Any

from gpu_backend.cuda import toolkit
from gpu_backend.cuda.driver import Stream
from gpu_backend.cuda.product import Product

WORKSPACE_BYTES = 32 << 20  # what cuBLAS recommends for Hopper

# cudaDataType and cublasComputeType_t
R_32F, R_16F, R_16BF = 0, 2, 14
COMPUTE_32F = 68
GEMM_DEFAULT = -1
OP_N, OP_T = 0, 1


class CublasError(RuntimeError):
    """A cuBLAS call failed; the message names the call and the status."""


def _load() -> ctypes.CDLL:
    """libcublas from NVIDIA's wheel or the system. Raises ToolkitError."""
    try:
        # cublasLt first: the wheel's libcublas finds it by name among the libraries already loaded.
        ctypes.CDLL(str(toolkit.library("libcublasLt.so.13", "nvidia-cublas")), ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(str(toolkit.library("libcublas.so.13", "nvidia-cublas")))
    except toolkit.ToolkitError as missing:
        try:
            return ctypes.CDLL("libcublas.so.13")
        except OSError:
            raise missing from None


class Cublas:
    """A cuBLAS handle bound to one stream and to a caller's workspace.

    The workspace keeps captured GEMMs free of allocation nodes (C3); all GEMMs share it, so they must not run
    concurrently (C4). Grids are planned for `multiprocessors`, or for all there are (0): where one is taken,
    a grid that needs all takes twice as long, as its last blocks run when the others have ended.
    """

    def __init__(self, stream: Stream, workspace: int, multiprocessors: int = 0) -> None:
        self._library = _load()
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        # In this order: setting the stream drops the workspace.
        self._call("cublasSetStream_v2", self._handle, ctypes.c_void_p(stream.address))
        self._call(
            "cublasSetWorkspace_v2",
            self._handle,
            ctypes.c_void_p(workspace),
            ctypes.c_size_t(WORKSPACE_BYTES),
        )
        self._call("cublasSetSmCountTarget", self._handle, multiprocessors)
        self._one = ctypes.c_float(1)
        self._zero = ctypes.c_float(0)

    def linear(self, product: Product, half: int) -> None:
        """`half`, R_16BF or R_16F, is the type of weight and x, and of out if the output is "half"."""
        weight, x, out = (ctypes.c_void_p(address) for address in (product.weight, product.x, product.out))
        # Row-major arrays are the transposes of column-major ones: out^T[n_out][rows] = weight * x^T.
        self._call(
            "cublasGemmEx",
            self._handle,
            *(OP_T, OP_N, product.n_out, product.rows, product.n_in),
            ctypes.byref(self._one),
            *(weight, half, product.n_in),
            *(x, half, product.n_in),
            ctypes.byref(self._one if product.output == "add" else self._zero),
            *(out, half if product.output == "half" else R_32F, product.n_out),
            COMPUTE_32F,
            GEMM_DEFAULT,
        )

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise CublasError(f"{name}: cublasStatus_t {status}")

    def close(self) -> None:
        if self._handle:
            self._call("cublasDestroy_v2", self._handle)
            self._handle = ctypes.c_void_p()
