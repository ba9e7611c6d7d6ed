"""A matmul of many rows with weights in fp8, of x that is quantised to it, in tiles
(kernels/ops/gemm/tiled_fp8_gemm_sm90.h). Where tiles are few, several share a tile's k, and a second kernel
adds up what they leave."""

from __future__ import annotations

from gpu_backend.arithmetic import ceil_div
from gpu_backend.element import Element
from gpu_backend.kernel_abi.fp8 import FP8_GROUP, SCALE_BLOCK
from gpu_backend.kernel_abi.tiled_epilogue_sm90 import TILED_BOX
from gpu_backend.kernel_abi.tiled_fp8_gemm_sm90 import TILED_FP8_SHARED_BYTES
from gpu_backend.kernel_abi.tiled_gemm_sm90 import TILED_ROWS, TILED_THREADS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor, row_block
from gpu_backend.ops.matrix import Buffer
from gpu_backend.ops.operations import Epilogue, MatMul
from gpu_backend.ops.skinny_cut import gate_up_boxes, matrix_boxes
from gpu_backend.ops.tiled_cut import PAIR
from gpu_backend.ops.tiled_fp8_cut import WORD, TiledFp8Cut, tiled_fp8_cut
from gpu_backend.ops.weights import SCALE_FORMS

TILED_FP8_PARAMS = "<QQIIIII4x"  # TiledFp8Params
OUTPUTS = (Epilogue.STORE, Epilogue.ADD, Epilogue.GATED)
GRAIN = 8  # outputs, of which a box of y has a whole number
SUM_THREADS, SUM_COLUMNS = 256, 8  # of a block of the kernel that adds up splits; of a thread


def box_outputs(output: Epilogue) -> int:
    """Of a box of y: 128 bytes of halves, of GATED 64, or 128 of fp32."""
    return 64 if output is Epilogue.STORE else 32


class TiledFp8Gemm:
    name = "tiled_fp8_gemm"

    def suits(self, op: MatMul, target: Target) -> str | None:
        if target.beyond_hopper:
            return target.beyond_hopper
        if op.weight.element is not Element.FP8 or op.x_scales is None:
            return "x and the weights are not both in fp8"
        if op.epilogue not in OUTPUTS:
            return "it puts out no logits"
        if op.k % FP8_GROUP or op.n % GRAIN:
            return f"k is {op.k} and n is {op.n}, no multiples of {FP8_GROUP} and {GRAIN}"
        by_block = op.weight.scale_form is ScaleForm.BLOCK
        if by_block and op.epilogue is Epilogue.GATED and op.n % SCALE_BLOCK:
            return f"a block of {SCALE_BLOCK} rows would have rows of gate and of up"
        return None

    def launches(self, op: MatMul, target: Target) -> list[Launch]:
        assert isinstance(op.weight.scale_form, ScaleForm)
        shape = (op.m, op.k, op.n, op.epilogue, op.weight.scale_form)
        return tiled_fp8_launches(op, tiled_fp8_cut(*shape, target.multiprocessors), target)


def tiled_fp8_launches(op: MatMul, cut: TiledFp8Cut, target: Target) -> list[Launch]:
    """Those of the kernels for an operation that is cut so."""
    if cut.splits == 1:
        return [_product(op, cut, op.out, op.epilogue, target)]
    parts = Buffer("split_parts", cut.splits * cut.part_rows, op.n, Element.FP32)
    block = row_block(op.n, SUM_THREADS)
    total = Launch(
        f"split_sums_kernel<{_half(op).cpp}, blink::{op.epilogue.value}>",
        (op.m, ceil_div(op.n, SUM_COLUMNS * block[0]), 1),
        block,
        (parts, op.out, cut.splits, cut.part_rows, op.n),
    )
    return [_product(op, cut, parts, Epilogue.STORE_FP32, target), total]


def _half(op: MatMul) -> Element:
    """That the kernels are instances for: where they put out fp32 alone, they have none to do with."""
    return Element.BF16 if op.out.element is Element.FP32 else op.out.element


def _product(op: MatMul, cut: TiledFp8Cut, out: Buffer, output: Epilogue, target: Target) -> Launch:
    assert op.x_scales is not None
    assert isinstance(op.weight.scale_form, ScaleForm)
    params, boxes = cut.params, gate_up_boxes if output is Epilogue.GATED else matrix_boxes
    w = boxes(op.k // WORD, op.n, TILED_ROWS)
    x = matrix_boxes(op.k // WORD, op.m, params.columns // PAIR)
    fp32 = out.element is Element.FP32
    maps = (
        Tensor(op.weight, w.shape, w.box, w.strides),
        Tensor(op.x, x.shape, x.box, x.strides),
        Tensor(out, (out.rows, op.n), (TILED_BOX, box_outputs(output)), fp32=fp32),
    )
    scales = (op.x_scales, op.weight.scales, op.x_scales.columns, op.n)
    half = Element.BF16 if fp32 else out.element
    return Launch(
        f"tiled_fp8_gemm_kernel<{half.cpp}, blink::{output.value}, {SCALE_FORMS[op.weight.scale_form]}, "
        f"{params.columns}>",
        (PAIR * cut.pairs(target.multiprocessors), 1, 1),
        (TILED_THREADS, 1, 1),
        (*maps, params.pack(), Struct(TILED_FP8_PARAMS, (*scales, cut.splits, cut.share, cut.part_rows))),
        shared_bytes=TILED_FP8_SHARED_BYTES,
        cluster=PAIR,
    )
