"""The kernels of a mixture of experts, emulated, against their references: skewed, uniform and no routing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulation import Emulate
from halves import NAN, assert_close, floats, random
from moe_case import STREAMED, TILED, MoeCase, new_plan
from reference_ops import CLAMPED_SWIGLU, StepData, call
from routings import NO_EXPERT, absent, padded, skewed, uniform
from weights import CODES, FP4_16, FP4_32, INT4

from gpu_backend.kernel_abi import fused_router
from gpu_backend.models.half import half_bits
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm

ROUTINGS = [uniform, skewed, padded, absent]


@pytest.mark.parametrize(("renormalise", "biased"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("n_experts", "per_token"), [(4, 1), (8, 2), (40, 40), (128, 8), (256, 32)])
def test_route(emulate: Emulate, n_experts: int, per_token: int, renormalise: bool, biased: bool) -> None:
    per_token = min(per_token, 32)
    arrays = StepData([(1, 0, 5), (2, 3, 7)], padding=2)
    rng = np.random.default_rng(n_experts)
    logits = (3 * rng.standard_normal((11, n_experts))).astype(np.float32)
    logits[1] = np.round(logits[1])  # ties
    logits[2, ::2] = np.nan
    logits[3, 1:] = -np.inf
    out = [(np.zeros((11, per_token), np.uint32), np.zeros((11, per_token), np.float32)) for _ in range(2)]
    bias = random(n_experts, seed=9, scale=2) if biased else None
    given = logits.copy()
    if bias is not None:
        logits += floats(bias)
    call("route", arrays.step_set, logits, *out[0], n_experts, per_token, int(renormalise), 11)
    emulate("route", arrays.step_set, given, bias, *out[1], n_experts, per_token, int(renormalise), 11)
    np.testing.assert_array_equal(out[1][0], out[0][0])
    np.testing.assert_allclose(out[1][1], out[0][1], rtol=1e-5)
    assert (out[1][0][9:] == NO_EXPERT).all()
    assert (out[1][1][9:] == 0).all()
    order = np.argsort(-logits[4:9], axis=1, kind="stable")[:, :per_token]
    np.testing.assert_array_equal(out[1][0][4:9], order)
    shares = np.exp(logits[4:9] - logits[4:9].max(axis=1, keepdims=True))
    chosen = np.take_along_axis(shares, order, axis=1)
    total = (chosen if renormalise else shares).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(out[1][1][4:9], chosen / total, rtol=1e-5)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("n_experts", "per_token", "hidden"), [(4, 1, 32), (40, 8, 2080), (128, 8, 96)])
def test_router(emulate: Emulate, n_experts: int, per_token: int, hidden: int, biased: bool) -> None:
    """The same as rmsnorm, a product and route, one after the other; tokens 9 and 10 are padding."""
    arrays, eps = StepData([(1, 0, 5), (2, 3, 7)], padding=2), 1e-5
    residual = np.random.default_rng(hidden).standard_normal((11, hidden)).astype(np.float32)
    norm, w = random(hidden, seed=1), random(n_experts, hidden, seed=2, scale=3 * hidden**-0.5)
    normed, logits = np.zeros((11, hidden), np.uint16), np.zeros((11, n_experts), np.float32)
    out = [(np.zeros((11, per_token), np.uint32), np.zeros((11, per_token), np.float32)) for _ in range(2)]
    sizes = (hidden, n_experts, per_token, 1)
    bias = random(n_experts, seed=3) if biased else None
    emulate("router", arrays.step_set, residual, norm, eps, w, bias, normed, logits, *out[1], 11, *sizes)
    scale = 1 / np.sqrt((residual**2).mean(axis=1, keepdims=True) + np.float32(eps))
    assert_close(floats(normed), residual * scale * floats(norm))
    assert_close(logits, floats(normed) @ floats(w).T + (0 if bias is None else floats(bias)))
    call("route", arrays.step_set, logits, *out[0], n_experts, per_token, 1, 11)
    np.testing.assert_array_equal(out[1][0], out[0][0])
    np.testing.assert_allclose(out[1][1], out[0][1], rtol=1e-5)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    ("tokens", "n_experts", "per_token"), [(1, 128, 8), (33, 5, 2), (64, 256, 8), (1100, 9, 3)]
)
def test_plan(emulate: Emulate, routing: Any, tokens: int, n_experts: int, per_token: int) -> None:
    choice = routing(tokens, n_experts, per_token)
    for unit in (16, 160):
        got, expected = (new_plan(choice, n_experts, unit) for _ in range(2))
        call("expert_plan", choice, *expected, tokens, n_experts, per_token, unit)
        emulate("expert_plan", choice, *got, tokens, n_experts, per_token, unit)
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize(
    ("run", "tokens", "n_experts", "per_token", "hidden", "intermediate"),
    [
        (STREAMED, 2, 8, 4, 96, 40),
        (STREAMED, 40, 5, 2, 64, 72),
        (STREAMED, 128, 4, 2, 200, 136),
        (STREAMED, 9, 16, 3, 528, 24),
        pytest.param(STREAMED, 7, 9, 3, 2056, 1032, marks=pytest.mark.slow),
        (TILED, 3, 4, 2, 200, 136),  # sizes that fill no tile, units of every width
        (TILED, 70, 3, 1, 72, 24),
        (TILED, 100, 3, 1, 72, 24),
        (TILED, 200, 2, 2, 328, 264),
    ],
)
def test_experts(
    emulate: Emulate,
    routing: Any,
    run: Any,
    tokens: int,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
) -> None:
    case = MoeCase(routing(tokens, n_experts, per_token), n_experts, hidden, intermediate)
    case.check(run(case, emulate))


@pytest.mark.parametrize("routing", [skewed, padded])
@pytest.mark.parametrize(
    ("run", "tokens", "n_experts", "per_token", "hidden", "intermediate"),
    [
        (STREAMED, 2, 8, 4, 96, 40),
        (STREAMED, 40, 5, 2, 64, 72),
        (TILED, 70, 3, 1, 72, 24),
        (TILED, 200, 2, 2, 328, 264),
    ],
)
def test_experts_with_a_bias(
    emulate: Emulate,
    routing: Any,
    run: Any,
    tokens: int,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
) -> None:
    case = MoeCase(routing(tokens, n_experts, per_token), n_experts, hidden, intermediate)
    case.bias = random(n_experts, 2, intermediate, seed=6, scale=2)
    case.check(run(case, emulate))


@pytest.mark.parametrize("form", CODES)
@pytest.mark.parametrize("tokens", [1, 20])
def test_experts_of_codes_with_a_bias(emulate: Emulate, tokens: int, form: GroupForm) -> None:
    """Also of an expert's pairs that are two units, and of so many tiles that each block has several."""
    case = MoeCase(skewed(tokens, 5, 2), 5, 256, 128, form)
    case.bias = random(5, 2, 128, seed=6, scale=2)
    case.check(case.run(emulate))


@pytest.mark.parametrize("form", [GroupForm(Codes.INT4, 32), FP4_32, FP4_16])
@pytest.mark.parametrize(
    ("tokens", "hidden", "intermediate"),
    [
        (1, 480, 96),  # a warp's part of a row ends within a chunk, and others have none
        (9, 416, 1568),  # down's rows are all warps', whose last have none
        pytest.param(1, 2880, 64, marks=pytest.mark.slow),  # gpt-oss's rows, with one pair a unit
        pytest.param(3, 96, 2880, marks=pytest.mark.slow),
        pytest.param(20, 3168, 3168, marks=pytest.mark.slow),  # two rounds of a row
    ],
)
def test_experts_of_codes_whose_rows_end_within_a_chunk(
    emulate: Emulate, tokens: int, hidden: int, intermediate: int, form: GroupForm
) -> None:
    """The scales of such rows begin within a word of bytes."""
    case = MoeCase(skewed(tokens, 4, 2), 4, hidden, intermediate, form)
    case.bias = random(4, 2, intermediate, seed=6, scale=2)
    case.check(case.run(emulate))


@pytest.mark.parametrize("form", [ScaleForm.ROW, ScaleForm.BLOCK, *CODES])
@pytest.mark.parametrize(
    ("run", "tokens", "n_experts", "per_token", "hidden", "intermediate"),
    [
        (STREAMED, 2, 5, 3, 384, 128),
        (STREAMED, 40, 3, 2, 128, 256),
        # a warp has several rounds of chunks of each row
        pytest.param(STREAMED, 20, 2, 1, 2176, 896, marks=pytest.mark.slow),
        pytest.param(STREAMED, 9, 6, 3, 2176, 640, marks=pytest.mark.slow),
    ],
)
def test_narrow_experts(
    emulate: Emulate,
    form: Form,
    run: Any,
    tokens: int,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
) -> None:
    case = MoeCase(uniform(tokens, n_experts, per_token), n_experts, hidden, intermediate, form)
    case.check(run(case, emulate))


@pytest.mark.parametrize("routing", [skewed, padded, absent])
def test_experts_in_fp8_of_sizes_that_fill_no_tile(emulate: Emulate, routing: Any) -> None:
    """Scales by row, which need no multiple of 128; a row is a multiple of 16."""
    case = MoeCase(routing(20, 5, 2), 5, 208, 48, ScaleForm.ROW)
    case.check(case.run(emulate))


@pytest.mark.parametrize("form", [GroupForm(Codes.INT4, 32), FP4_32, FP4_16])
@pytest.mark.parametrize("routing", [skewed, padded, absent])
def test_experts_of_codes_in_sizes_that_fill_no_tile(emulate: Emulate, routing: Any, form: GroupForm) -> None:
    """A row is a multiple of 32, as gpt-oss's are."""
    case = MoeCase(routing(20, 5, 2), 5, 288, 96, form)
    case.check(case.run(emulate))


@pytest.mark.parametrize(
    "form", [GroupForm(Codes.INT4, 32), INT4, GroupForm(Codes.INT4, 128), FP4_32, FP4_16]
)
@pytest.mark.parametrize(
    ("routing", "tokens", "n_experts", "per_token", "hidden", "intermediate", "biased"),
    [
        (uniform, 9, 4, 2, 384, 128, False),  # units of every width, in tiles that are not full
        (padded, 90, 3, 1, 128, 384, True),
        (skewed, 90, 3, 1, 640, 128, False),  # some experts have all pairs, and some none
        pytest.param(skewed, 300, 2, 1, 256, 128, True, marks=pytest.mark.slow),
        (absent, 5, 3, 2, 128, 128, False),
    ],
)
def test_tiled_experts_of_codes(
    emulate: Emulate,
    form: GroupForm,
    routing: Any,
    tokens: int,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
    biased: bool,
) -> None:
    case = MoeCase(routing(tokens, n_experts, per_token), n_experts, hidden, intermediate, form)
    case.bias = random(n_experts, 2, intermediate, seed=6, scale=2) if biased else None
    case.check(case.run_tiled(emulate))


@pytest.mark.parametrize("form", [GroupForm(Codes.INT4, 32), FP4_32, FP4_16])
@pytest.mark.parametrize(
    ("tokens", "hidden", "intermediate"),
    [(20, 288, 96), (70, 96, 288), (33, 1120, 64), pytest.param(40, 2880, 160, marks=pytest.mark.slow)],
)
def test_tiled_experts_of_codes_in_sizes_that_fill_no_stage(
    emulate: Emulate, form: GroupForm, tokens: int, hidden: int, intermediate: int
) -> None:
    """Rows whose scales begin anywhere, and end in the middle of a window."""
    case = MoeCase(padded(tokens, 5, 2), 5, hidden, intermediate, form)
    case.check(case.run_tiled(emulate))


@pytest.mark.parametrize("form", CODES)
def test_tiled_experts_of_codes_multiply_what_they_unpack_to(emulate: Emulate, form: GroupForm) -> None:
    """The same bits as those of the kernel for halves with the weights' values."""
    case = MoeCase(uniform(40, 3, 2), 3, 384, 128, form)
    rows = case.run_tiled(emulate)
    for weight in (case.gate_up, case.down):
        weight.stored = half_bits(weight.values, "float32", "bfloat16")
    case.codes = False
    np.testing.assert_array_equal(case.run_tiled(emulate), rows)


@pytest.mark.parametrize(
    ("run", "skewed_tokens", "form", "sizes"),
    [
        (STREAMED, 20, None, (96, 48)),
        (TILED, 70, None, (96, 48)),
        (STREAMED, 20, ScaleForm.ROW, (96, 48)),
        (STREAMED, 20, ScaleForm.BLOCK, (128, 128)),
        (STREAMED, 20, INT4, (128, 64)),
        (TILED, 70, INT4, (128, 64)),
        (TILED, 70, FP4_32, (96, 64)),
    ],
)
def test_a_row_depends_on_its_pair_alone(
    emulate: Emulate, run: Any, skewed_tokens: int, form: Form | None, sizes: tuple[int, int]
) -> None:
    """E8: the same bits whatever else the step holds, and whichever block takes the unit."""
    choice = skewed(skewed_tokens + 20, 6, 2)
    choice[skewed_tokens:] = uniform(20, 6, 2)
    full = MoeCase(choice, 6, *sizes, form)
    rows = run(full, emulate)
    np.testing.assert_array_equal(run(full, emulate, blocks=7), rows)
    part = MoeCase(choice, 6, *sizes, form)
    part.choice = choice.copy()
    part.choice[[*range(5), *range(9, skewed_tokens + 13)]] = NO_EXPERT
    kept = part.choice[:, 0] != NO_EXPERT
    np.testing.assert_array_equal(run(part, emulate)[kept], rows[kept])


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("hidden", [8, 1000])
def test_moe_combine(emulate: Emulate, hidden: int, biased: bool) -> None:
    choice, rows = padded(7, 9, 3), random(7, 3, hidden)
    rows[1::3] = NAN
    weight = np.random.default_rng(0).random((7, 3), np.float32)
    before = np.random.default_rng(1).standard_normal((7, hidden)).astype(np.float32)
    delta, out = np.full((7, hidden), 7, np.float32), before.copy()
    bias, adds = (random(9, hidden, seed=5), random(hidden, seed=6)) if biased else (None, None)
    float_bias = None if bias is None else floats(bias)
    call("moe_combine", floats(rows), choice, weight, float_bias, delta, hidden, 3, 7)
    emulate("moe_combine", rows, choice, weight, bias, out, hidden, 3, 7)
    assert_close(out, before + delta)
    assert (out[1::3] == before[1::3]).all()

    norm, normed, summed = random(hidden, seed=4), np.zeros((7, hidden), np.uint16), before.copy()
    norms = (norm, 1e-5, normed, adds)
    emulate("moe_combine_rmsnorm", rows, choice, weight, bias, summed, *norms, hidden, 3, 7)
    np.testing.assert_array_equal(summed, out if adds is None else out + floats(adds))
    scale = 1 / np.sqrt((out**2).mean(axis=1, keepdims=True) + np.float32(1e-5))
    assert_close(floats(normed), out * scale * floats(norm))


PLACES = fused_router.SUM_PLACES
UNIT_SUM = 2.0**32  # kSumUnit


@pytest.mark.parametrize("is_padding", [False, True])
@pytest.mark.parametrize("renormalise", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("n_experts", "per_token", "hidden", "intermediate", "blocks", "form"),
    [
        (12, 4, 96, 64, 5, None),
        pytest.param(128, 8, 64, 768, 8, None, marks=pytest.mark.slow),
        pytest.param(255, 1, 2056, 64, 4, None, marks=pytest.mark.slow),
        pytest.param(7, 7, 2080, 128, 3, None, marks=pytest.mark.slow),
        (4, 1, 64, 1088, 4, None),
        (12, 4, 96, 128, 5, ScaleForm.ROW),
        (70, 8, 64, 128, 5, ScaleForm.ROW),  # experts of three groups that are ranked together
        (9, 3, 64, 1152, 4, ScaleForm.ROW),  # a row of the product that a warp does not hold at once
        pytest.param(9, 8, 592, 896, 4, ScaleForm.ROW, marks=pytest.mark.slow),
        (12, 4, 128, 256, 5, INT4),
        (5, 3, 2304, 512, 3, FP4_32),
        (5, 2, 160, 256, 3, FP4_16),
        (7, 3, 2192, 128, 5, ScaleForm.ROW),  # two rounds of an item, the second of which has one chunk
        pytest.param(9, 8, 128, 896, 8, ScaleForm.BLOCK, marks=pytest.mark.slow),
        pytest.param(7, 3, 2176, 128, 5, ScaleForm.BLOCK, marks=pytest.mark.slow),
    ],
)
def test_experts_of_one_token(
    emulate: Emulate,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
    blocks: int,
    form: Form | None,
    renormalise: bool,
    is_padding: bool,
) -> None:
    """From the router's sums to the residual, which padding's stays; the sums are zero again."""
    case = MoeCase(np.zeros((1, per_token), np.uint32), n_experts, hidden, intermediate, form)
    check_one_token(emulate, case, blocks, renormalise, is_padding)


@pytest.mark.parametrize("form", list(ScaleForm))
@pytest.mark.parametrize("gain", [1e-8, 3e3])
def test_products_of_one_token_beyond_float16(emulate: Emulate, form: ScaleForm, gain: float) -> None:
    """Experts put out what bfloat16's range allows, though down multiplies float16."""
    check_one_token(emulate, MoeCase(np.zeros((1, 3), np.uint32), 5, 128, 256, form, gain))


@pytest.mark.parametrize("form", list(ScaleForm))
def test_a_token_whose_norm_is_beyond_float16(emulate: Emulate, form: ScaleForm) -> None:
    """What gate_up multiplies by row is held in float16, whose largest it becomes."""
    case = MoeCase(np.zeros((1, 3), np.uint32), 5, 128, 256, form)
    check_one_token(emulate, case, norm=5e4, largest=65504 if form is ScaleForm.ROW else np.inf)


@pytest.mark.parametrize("is_padding", [False, True])
@pytest.mark.parametrize(
    ("n_experts", "per_token", "hidden", "intermediate", "blocks", "form"),
    [
        (12, 4, 96, 64, 5, None),
        pytest.param(32, 4, 2880, 128, 7, None, marks=pytest.mark.slow),
        (12, 4, 96, 64, 5, FP4_32),  # a warp's part of a row ends within a chunk, and others have none
        (9, 3, 224, 416, 2, FP4_32),  # an expert less than there are warps for, and several tiles in turn
        (5, 1, 2112, 1056, 9, FP4_32),  # parts whose scales begin anywhere in a word
        (12, 4, 128, 256, 5, INT4),
        (7, 2, 160, 224, 4, GroupForm(Codes.INT4, 32)),
        (9, 4, 160, 608, 3, FP4_16),
        pytest.param(32, 4, 2880, 160, 17, FP4_32, marks=pytest.mark.slow),  # gpt-oss's rows
        pytest.param(32, 4, 160, 2880, 7, FP4_32, marks=pytest.mark.slow),
        pytest.param(6, 4, 4096, 96, 17, FP4_32, marks=pytest.mark.slow),  # as long as rows may be
        pytest.param(6, 4, 96, 3072, 5, FP4_32, marks=pytest.mark.slow),
    ],
)
def test_experts_of_one_token_with_biases(
    emulate_clamped: Emulate,
    n_experts: int,
    per_token: int,
    hidden: int,
    intermediate: int,
    blocks: int,
    form: Form | None,
    is_padding: bool,
) -> None:
    """As gpt-oss has them; the router's decides who is chosen. Padding gets none."""
    case = MoeCase(np.zeros((1, per_token), np.uint32), n_experts, hidden, intermediate, form)
    case.bias, case.activation = random(n_experts, 2, intermediate, seed=6, scale=8), CLAMPED_SWIGLU
    check_one_token(emulate_clamped, case, blocks, True, is_padding)


def check_one_token(
    emulate: Emulate,
    case: MoeCase,
    blocks: int = 5,
    renormalise: bool = True,
    is_padding: bool = False,
    norm: float = 1,
    largest: float = np.inf,
) -> None:
    """`norm` is the size of the norm's weights, `largest` of what the experts see of the normed token."""
    n_experts, per_token = case.n_experts, case.per_token
    hidden, intermediate = case.hidden, case.intermediate
    rng, eps = np.random.default_rng(hidden), 1e-5
    residual = (5 * rng.standard_normal(hidden)).astype(np.float32)
    router_bias = None if case.bias is None else random(n_experts, seed=7, scale=3)
    down_bias = None if case.bias is None else random(n_experts, hidden, seed=8)
    scale = 1 / np.sqrt((residual**2).mean() + np.float32(eps))
    factors = random(hidden, seed=4, scale=norm)
    logits = np.round(2 * rng.standard_normal(n_experts)).astype(np.float32)  # with ties
    logits += 200  # far beyond what exp takes
    logits[-2:] = logits.max(), -1e6  # a tie of the highest, in the last group of 32
    sums = (rng.integers(-(1 << 40), 1 << 40, (PLACES, n_experts))).astype(np.int64)
    sums[0] += np.round(logits.astype(np.float64) / scale * UNIT_SUM).astype(np.int64) - sums.sum(axis=0)

    if router_bias is not None:
        router_bias[[logits.argmax(), -2]] = router_bias[floats(router_bias).argmax()]  # they stay a tie
        logits += floats(router_bias)
    case.choice[0] = np.argsort(-logits, kind="stable")[:per_token]
    normed = np.clip(residual * scale * floats(factors), -largest, largest)
    case.x = ((normed.view(np.uint32) + 0x8000) >> 16).astype(np.uint16)[None]  # rounded to bfloat16
    choice, weight = np.full(per_token, 7, np.uint32), np.full(per_token, np.nan, np.float32)
    product, out = np.full((per_token, intermediate), NAN, np.uint16), residual.copy()
    token_sequence = np.array([NO_EXPERT if is_padding else 0], np.uint32)
    biases = (router_bias, case.bias, down_bias)
    inputs = (factors, eps, *case.gate_up.pointers, *case.down.pointers, *biases, product, out)
    sizes = (n_experts, hidden, intermediate, per_token, int(renormalise), case.gate_up.form, blocks)
    emulate("moe_single_token", token_sequence, sums, choice, weight, *inputs, *sizes)
    assert (sums == 0).all()
    if is_padding:
        np.testing.assert_array_equal(out, residual)
        assert (product == NAN).all()
        assert (choice == NO_EXPERT).all()
        assert (weight == 0).all()
        return
    np.testing.assert_array_equal(choice, case.choice[0])
    shares = np.exp(logits - logits.max())
    total = shares[choice].sum() if renormalise else shares.sum()
    np.testing.assert_allclose(weight, shares[choice] / total, rtol=1e-4)
    rows = case.expected()[0] + (0 if down_bias is None else floats(down_bias)[choice])
    assert_close(out, residual + weight @ rows)
