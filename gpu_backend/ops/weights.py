"""What kernels are given of a matrix that is of halves or of fp8 (kernels/ops/gemm/weight_lanes.h)."""

from __future__ import annotations

from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.launch import Struct
from gpu_backend.ops.matrix import Matrix

FP8_MATRIX = "<2Q"  # Fp8Matrix
SCALE_FORMS = {ScaleForm.ROW: "blink::kScaleByRow", ScaleForm.BLOCK: "blink::kScaleByBlock"}

UNSCALED = "blink::kUnscaled"


def weight_operand(weight: Matrix) -> Matrix | Struct:
    """The address of halves, or an Fp8Matrix."""
    return weight if weight.scales is None else Struct(FP8_MATRIX, (weight, weight.scales))


def instance(*arguments: str, of: Matrix) -> str:
    """A kernel's template arguments: of one that multiplies fp8, the form of the scales is the last."""
    form = of.scale_form
    return ", ".join((*arguments, SCALE_FORMS[form]) if form else arguments)


def lane_weights(weight: Matrix) -> int:
    """k of the 16 bytes of a row that a lane loads at once."""
    return 16 // weight.element.n_bytes
