"""Which kernels serve experts in codes of four bits."""

from __future__ import annotations

import pytest

from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_ring import EXPERT_RING_BYTES
from gpu_backend.models.quantization import Codes, GroupForm
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Moe, Norm, Routing
from gpu_backend.ops.weights import scales_of

BF16, FP32 = Element.BF16, Element.FP32
TARGET = Target(132, has_experts=True, gemv_rows=8)
FORM = GroupForm(Codes.E2M1, 32)


def codes(rows: int, columns: int) -> Matrix:
    return Matrix(rows, columns, Element.CODES, scales=scales_of(FORM, rows, columns, 0), groups=FORM)


@pytest.mark.parametrize(
    ("inner", "matmul"), [(768, "kDown"), (1536, "kDown"), (1568, "kLongDown"), (2880, "kLongDown")]
)
def test_all_warps_share_the_rows_of_a_down_matmul_of_more_than_a_round(inner: int, matmul: str) -> None:
    hidden = 2880
    op = Moe(
        Routing(32, 4, True),
        inner,
        Norm(Matrix(1, hidden, BF16), 1e-6),
        Matrix(32, hidden, BF16),
        codes(2 * 32 * inner, hidden),
        codes(32 * hidden, inner),
        Buffer("residual", 8, hidden, FP32),
        Buffer("normed", 8, hidden, BF16),
    )
    launches = [work for work in choose(op, TARGET).launches if isinstance(work, Launch)]
    [down] = [work for work in launches if "Down" in work.kernel]
    constants = ("__nv_bfloat16", f"blink::{matmul}", "blink::kRoutingGiven", "blink::kFp4By32")
    assert down.kernel == f"moe_gemv_kernel<{', '.join(constants)}>"
    assert down.shared_bytes == EXPERT_RING_BYTES
