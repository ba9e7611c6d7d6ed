"""Which kernels serve experts in fp8, and what they are launched with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_backend.element import Element
from gpu_backend.kernel_abi.expert_ring import EXPERT_RING_BYTES
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.candidate import NoKernel
from gpu_backend.ops.choice import choose
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.launch import Launch, Struct
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import Moe, Norm, Routing

BF16, FP8, FP32 = Element.BF16, Element.FP8, Element.FP32
TARGET = Target(132, has_experts=True, gemv_rows=8)
NAMES = {ScaleForm.ROW: "blink::kScaleByRow", ScaleForm.BLOCK: "blink::kScaleByBlock"}


def fp8(rows: int, columns: int, form: ScaleForm) -> Matrix:
    return Matrix(rows, columns, FP8, scales=Matrix(*form.shape(rows, columns), FP32))


def experts(tokens: int, form: ScaleForm, hidden: int = 2048, inner: int = 768, count: int = 128) -> Moe:
    return Moe(
        Routing(count, 8, True),
        inner,
        Norm(Matrix(1, hidden, BF16), 1e-6),
        Matrix(count, hidden, BF16),
        fp8(2 * count * inner, hidden, form),
        fp8(count * hidden, inner, form),
        Buffer("residual", tokens, hidden, FP32),
        Buffer("normed", tokens, hidden, BF16),
        routed=tokens == 1,
    )


def kernels(op: Moe) -> list[Launch]:
    return [
        work for work in choose(op, TARGET).launches if isinstance(work, Launch) and "moe_" in work.kernel
    ]


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize(
    ("tokens", "family", "gate_up", "down"),
    [
        (1, "moe_one", "single_token_gate_up_kernel<{}>", "single_token_down_kernel<{}>"),
        (8, "moe_stream", "gemv_kernel<{}, GateUp, RoutingFused>", "gemv_kernel<{}, Down, RoutingGiven>"),
        (128, "moe_stream", "gemv_kernel<{}, GateUp, RoutingGiven>", "gemv_kernel<{}, Down, RoutingGiven>"),
        (129, "moe_tiled", "grouped_fp8_gemm_kernel<{}, GateUp>", "grouped_fp8_gemm_kernel<{}, Down>"),
    ],
)
def test_each_number_of_tokens_has_its_instance(
    tokens: int, family: str, gate_up: str, down: str, form: ScaleForm
) -> None:
    op = experts(tokens, form)
    assert choose(op, TARGET).name == family
    for launch, name in zip(kernels(op)[:2], (gate_up, down), strict=True):
        wanted = name.replace("{}", BF16.cpp).replace(", ", ", blink::k").replace(">", f", {NAMES[form]}>")
        assert launch.kernel == f"moe_{wanted}"


def test_few_tokens_take_elements_and_scales_together() -> None:
    """And what is held in shared memory is of halves."""
    op = experts(1, ScaleForm.ROW)
    gate_up, down = kernels(op)
    assert Struct("<2Q", (op.gate_up, op.gate_up.scales)) in gate_up.operands
    assert Struct("<2Q", (op.down, op.down.scales)) in down.operands
    assert (gate_up.shared_bytes, down.shared_bytes) == (2 * op.hidden, 2 * 8 * op.intermediate)


@pytest.mark.parametrize("tokens", [2, 32])
@pytest.mark.parametrize("form", list(ScaleForm))
def test_few_tokens_are_normed_in_float16_and_their_weights_go_through_shared_memory(
    tokens: int, form: ScaleForm
) -> None:
    op = experts(tokens, form)
    router = choose(op, TARGET).launches[0]
    assert isinstance(router, Launch)
    assert router.kernel == "router_kernel<__nv_bfloat16, __half>"
    gate_up, down = kernels(op)[:2]
    assert gate_up.shared_bytes == down.shared_bytes == EXPERT_RING_BYTES
    assert choose(experts(tokens, ScaleForm.ROW, hidden=2064), TARGET).name == "moe_tiled"  # no such router


@pytest.mark.parametrize(
    ("inner", "family"), [(768, "moe_one"), (192, "moe_stream"), (64, "moe_stream"), (2176, "moe_stream")]
)
def test_one_token_needs_whole_chunks_of_both_halves_and_room(inner: int, family: str) -> None:
    op = experts(1, ScaleForm.ROW, inner=inner)
    assert choose(replace(op, routed=family == "moe_one"), TARGET).name == family


def test_the_product_has_a_scale_for_each_pair_and_128_columns() -> None:
    """Where the weights have one for each row, too."""
    buffers = {
        buffer.name: buffer for buffer in choose(experts(300, ScaleForm.ROW, inner=720), TARGET).buffers
    }
    assert buffers["expert_product_fp8"] == Buffer("expert_product_fp8", 2400, 720, FP8)
    assert buffers["expert_product_scales"] == Buffer("expert_product_scales", 6, 2400, FP32)
    assert "expert_product" not in buffers


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"down": Matrix(128 * 2048, 768, BF16)}, "both in fp8, or neither"),
        ({"gate_up": Matrix(2 * 128 * 768, 2048, BF16)}, "both in fp8, or neither"),
    ],
)
def test_many_tokens_need_both_matrices_in_fp8(change: dict[str, Matrix], reason: str) -> None:
    with pytest.raises(NoKernel, match=reason):
        choose(replace(experts(300, ScaleForm.ROW), **change), TARGET)  # type: ignore[arg-type]


def test_a_block_of_two_experts_rows_is_refused() -> None:
    with pytest.raises(NoKernel, match="rows of two experts"):
        choose(experts(300, ScaleForm.BLOCK, inner=720), TARGET)
