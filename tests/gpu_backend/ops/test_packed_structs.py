"""The structs that ops pack by format have the size that the kernels' headers give them."""

from __future__ import annotations

from struct import calcsize

from gpu_backend.kernel_abi import fused_router, skinny_pipeline_sm90, tiled_fp8_gemm_sm90, tiled_gemm_sm90
from gpu_backend.megakernel_abi import MegakernelBuffers
from gpu_backend.ops.megakernel import MEGAKERNEL_BUFFERS
from gpu_backend.ops.operations import Epilogue
from gpu_backend.ops.resident_gemv import ROUTER_PART
from gpu_backend.ops.tiled_cut import tiled_cut
from gpu_backend.ops.tiled_fp8 import TILED_FP8_PARAMS


def test_sizes_are_those_of_the_headers() -> None:
    assert calcsize(ROUTER_PART) == fused_router.FusedRouter.itemsize
    assert calcsize(MEGAKERNEL_BUFFERS) == MegakernelBuffers.itemsize
    assert calcsize(TILED_FP8_PARAMS) == tiled_fp8_gemm_sm90.TiledFp8Params.itemsize
    assert len(tiled_cut(1024, 64, 64, Epilogue.ADD, 132).pack()) == tiled_gemm_sm90.TiledParams.itemsize


def test_both_kernels_of_swizzled_panels_have_panels_of_one_width() -> None:
    """The boxes of their matrices are made by one function."""
    assert tiled_gemm_sm90.TILED_PANEL == skinny_pipeline_sm90.SKINNY_PANEL
