"""A matmul of many rows with weights in fp8, of x that is quantised to it, in tiles
(kernels/ops/gemm/tiled_fp8_gemm_sm90.h)."""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.kernel_abi.fp8 import FP8_GROUP, SCALE_BLOCK
from gpu_backend.kernel_abi.tiled_epilogue_sm90 import TILED_BOX
from gpu_backend.kernel_abi.tiled_fp8_gemm_sm90 import TILED_FP8_COLUMNS, TILED_FP8_SHARED_BYTES
from gpu_backend.kernel_abi.tiled_gemm_sm90 import TILED_ROWS, TILED_THREADS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct, Tensor
from gpu_backend.ops.operations import Epilogue, MatMul
from gpu_backend.ops.quantize import FORMS
from gpu_backend.ops.skinny_cut import gate_up_boxes, matrix_boxes
from gpu_backend.ops.tiled_cut import PAIR, TiledParams, tiled_cut

TILED_SCALES = "<QQII"  # TiledScales
OUTPUTS = (Epilogue.STORE, Epilogue.ADD, Epilogue.GATED)
WORD = 2  # elements of fp8 in a word of 16 bits, of which the kernel copies rows
GRAIN = 8  # outputs, of which a box of y has a whole number


def box_outputs(stores: bool) -> int:
    """Of a box of y: 128 bytes of halves, of GATED 64, or 128 of fp32. `stores`: it is Epilogue.STORE."""
    return 64 if stores else 32


class TiledFp8Gemm:
    name = "tiled_fp8_gemm"

    def suits(self, op: MatMul, target: Target) -> str | None:
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
        return [tiled_fp8_launch(op, tiled_fp8_cut(op, target), target)]


def tiled_fp8_cut(op: MatMul, target: Target) -> TiledParams:
    """The kernel's parameters, with k in words."""
    sizes = (op.m, op.k // WORD, op.n, op.epilogue, target.multiprocessors)
    return tiled_cut(*sizes, most_columns=TILED_FP8_COLUMNS)


def tiled_fp8_launch(op: MatMul, tiling: TiledParams, target: Target) -> Launch:
    """The launch of the kernel for an operation with this tiling."""
    assert op.x_scales is not None
    assert op.weight.scale_form is not None
    boxes = gate_up_boxes if op.epilogue is Epilogue.GATED else matrix_boxes
    w = boxes(op.k // WORD, op.n, TILED_ROWS)
    x = matrix_boxes(op.k // WORD, op.m, tiling.columns // PAIR)
    y_box = (TILED_BOX, box_outputs(op.epilogue is Epilogue.STORE))
    maps = (
        Tensor(op.weight, w.shape, w.box, w.strides),
        Tensor(op.x, x.shape, x.box, x.strides),
        Tensor(op.out, (op.m, op.n), y_box, fp32=op.epilogue is Epilogue.ADD),
    )
    scales = Struct(TILED_SCALES, (op.x_scales, op.weight.scales, op.x_scales.columns, op.n))
    half = (Element.BF16 if op.out.element is Element.FP32 else op.out.element).cpp  # of fp32 none is made
    instance = f"{half}, blink::{op.epilogue.value}, {FORMS[op.weight.scale_form]}, {tiling.columns}"
    return Launch(
        f"tiled_fp8_gemm_kernel<{instance}>",
        (PAIR * tiling.pairs(target.multiprocessors), 1, 1),
        (TILED_THREADS, 1, 1),
        (*maps, tiling.pack(), scales),
        shared_bytes=TILED_FP8_SHARED_BYTES,
        cluster=PAIR,
    )
