"""What kernels are given of a matrix that is of halves, of fp8 or of codes of four bits
(kernels/ops/gemm/weight_lanes.h)."""

from __future__ import annotations

from gpu_backend.element import Element
from gpu_backend.models.fourbit import unit_columns
from gpu_backend.models.quantization import CODE_GRAIN, Codes, Form, GroupForm, ScaleForm
from gpu_backend.ops.launch import Struct
from gpu_backend.ops.matrix import Matrix

FP8_MATRIX = "<2Q"  # Fp8Matrix
CODE_MATRIX = "<2QI4x"  # CodeMatrix
SCALE_FORMS = {ScaleForm.ROW: "blink::kScaleByRow", ScaleForm.BLOCK: "blink::kScaleByBlock"}

UNSCALED = "blink::kUnscaled"


def form_name(form: Form) -> str:
    """The constant's name in C++ (kernels/primitives/scale_form.h)."""
    if isinstance(form, ScaleForm):
        return SCALE_FORMS[form]
    if form.codes is Codes.INT4:
        return "blink::kInt4ByGroup"
    return "blink::kFp4By32" if form.group == CODE_GRAIN else "blink::kFp4By16"


def weight_operand(weight: Matrix) -> Matrix | Struct:
    """The address of halves, an Fp8Matrix or a CodeMatrix."""
    if weight.groups:
        shift = unit_columns(weight.groups).bit_length() - 1
        return Struct(CODE_MATRIX, (weight, weight.scales, shift))
    return weight if weight.scales is None else Struct(FP8_MATRIX, (weight, weight.scales))


def instance(*arguments: str, of: Matrix) -> str:
    """A kernel's template arguments: of one that multiplies narrow weights, their form is the last."""
    form = of.scale_form
    return ", ".join((*arguments, form_name(form)) if form else arguments)


def lane_weights(weight: Matrix) -> int:
    """k of the 16 bytes of a row that a lane loads at once."""
    return 8 * 16 // weight.element.n_bits


def scales_of(form: GroupForm, rows: int, columns: int, address: int) -> Matrix:
    """Those of a matrix of codes, as they lie in memory."""
    element = Element.U8 if form_name(form) == "blink::kFp4By32" else Element.U32
    return Matrix(rows, columns // unit_columns(form), element, address)
