"""Quantisation of activations and the tiled GEMM of fp8 with fp8 on the GPU, as the engine launches them,
against numpy's product of the quantised values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from launching import launch
from numpy.typing import NDArray
from quantized import Operand, activations, weight
from test_tiled_gemm_gpu import TOLERANCE, Floats, Rig

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.kernel_abi.tiled_fp8_gemm_sm90 import TILED_FP8_COLUMNS
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.ops.elementwise import AddNormKernel, RmsNormKernel
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.operations import AddNorm, Epilogue, MatMul, Norm, Quantize, RmsNorm, Role
from gpu_backend.ops.quantize import QuantizeKernel, quantize_for, row_kernel
from gpu_backend.ops.tiled_cut import TILED_BOX
from gpu_backend.ops.tiled_fp8 import OUTPUTS, tiled_fp8_launches
from gpu_backend.ops.tiled_fp8_cut import FEWEST_FP8_COLUMNS, TiledFp8Cut, tiled_fp8_cut, tiling
from gpu_backend.ops.weights import SCALE_FORMS

ADD, SILU, STORE = Epilogue.ADD, Epilogue.GATED, Epilogue.STORE
COLUMNS = range(FEWEST_FP8_COLUMNS, TILED_FP8_COLUMNS + 1, TILED_BOX)
QUANTIZERS = ("rmsnorm_quantize", "add_rmsnorm_quantize")
SUMS = 2e-3  # relative error of sums that the tensor cores make of up to 512 columns
BEHIND = 7.0  # what lies behind a result


@pytest.fixture(scope="module", params=["bfloat16", "float16"])
def rig(request: pytest.FixtureRequest) -> Iterator[Rig]:
    device = Device()
    memory, stream = DeviceMemory(device), Stream()
    element = compute_element(request.param)
    names = [
        f"tiled_fp8_gemm_kernel<{half.cpp}, blink::{output.value}, {form}, {columns}>"
        for output in (*OUTPUTS, Epilogue.STORE_FP32)
        for half in [element if output in (STORE, SILU) else Element.BF16]
        for form in SCALE_FORMS.values()
        for columns in COLUMNS
    ]
    for form in SCALE_FORMS.values():
        names += [f"{kernel}_kernel<{element.cpp}, {form}>" for kernel in QUANTIZERS]
    names += [row_kernel(element, form, held) for form in ScaleForm for held in (1, 2, 4)]
    for half, output in ((element, STORE), (Element.BF16, ADD)):
        names.append(f"split_sums_kernel<{half.cpp}, blink::{output.value}>")
    kernels = Kernels(device.arch, names, element)
    yield Rig(memory, stream, kernels, request.param, device.n_multiprocessors)
    kernels.close()
    stream.close()
    memory.close()
    device.close()


def inputs(rig: Rig, rows: int, k: int, n: int, output: Epilogue, form: ScaleForm) -> tuple[Floats, Operand]:
    rng = np.random.default_rng(rows)
    values = rig.rounded(rng, (2 if output is SILU else 1) * n, k, scale=k**-0.5)
    return rig.rounded(rng, rows, k), weight(values, form)


def operation(
    rig: Rig, rows: int, k: int, n: int, output: Epilogue, form: ScaleForm, w: Operand | None = None
) -> tuple[Quantize, MatMul]:
    element = compute_element(rig.dtype)
    scales = Matrix(*form.shape(n, k), Element.FP32)
    matrix = Matrix(n, k, Element.FP8, scales=scales)
    if w is not None:
        scales = Matrix(*w.scales.shape, Element.FP32, rig.upload(w.scales))
        matrix = Matrix(len(w.elements), k, Element.FP8, rig.upload(w.elements), scales)
    quantize = quantize_for(matrix, Buffer("x", rows, k, element))
    out = Buffer("out", rows, n, Element.FP32 if output is ADD else element)
    return quantize, MatMul(Role.DOWN, matrix, quantize.out, out, output, quantize.scales)


def multiply(
    rig: Rig, x: Floats, w: Operand, n: int, output: Epilogue, form: ScaleForm,
    cut: TiledFp8Cut | None = None,
) -> Floats:  # fmt: skip
    """[rows + 1][n]: the product with x quantised, added to BEHIND, or in its place."""
    (rows, k), target = x.shape, Target(rig.n_multiprocessors)
    quantize, matmul = operation(rig, rows, k, n, output, form, w)
    start = np.full((rows + 1, n), BEHIND, np.float32)
    addresses = {
        "x": rig.halves(x),
        "out": rig.upload(start) if output is ADD else rig.halves(start),
        quantize.out.name: rig.memory.allocate(quantize.out.n_bytes),
        quantize.scales.name: rig.memory.allocate(quantize.scales.n_bytes),
    }
    cut = cut or tiled_fp8_cut(rows, k, n, output, form, target.multiprocessors)
    works = [*QuantizeKernel().launches(quantize, target), *tiled_fp8_launches(matmul, cut, target)]
    if cut.splits > 1:
        addresses["split_parts"] = rig.memory.allocate(4 * cut.splits * cut.part_rows * n)
    launch(rig.kernels, rig.stream, works, addresses)
    return rig.read(addresses["out"], start.shape, output is ADD)


def check(rig: Rig, x: Floats, w: Operand, output: Epilogue, form: ScaleForm, got: Floats) -> None:
    """And what lies behind the product stays as it was."""
    expected = activations(x, form).values @ w.values.T
    if output is SILU:
        gate, up = np.hsplit(expected, 2)
        expected = gate / (1 + np.exp(-gate)) * up
    made = got[:-1] - BEHIND if output is ADD else got[:-1]
    tolerance = SUMS + (0 if output is ADD else TOLERANCE[rig.dtype])
    assert np.linalg.norm(made - expected) <= tolerance * np.linalg.norm(expected)
    assert (got[-1] == BEHIND).all()


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize(("rows", "k"), [(1, 16), (70, 4096), (300, 272), (90, 14336), (33, 28672)])
def test_quantised_elements(rig: Rig, rows: int, k: int, form: ScaleForm) -> None:
    """To the last bit, what is no number included."""
    quantize, _ = operation(rig, rows, k, 128, ADD, form)
    x = rig.rounded(np.random.default_rng(k), rows, k)
    x[rows // 2, k // 3 :] = 0
    x[rows // 3, 3] = np.inf
    addresses = {
        "x": rig.halves(x),
        quantize.out.name: rig.memory.allocate(quantize.out.n_bytes),
        quantize.scales.name: rig.memory.allocate(quantize.scales.n_bytes),
    }
    launch(rig.kernels, rig.stream, QuantizeKernel().launches(quantize, Target(132)), addresses)
    check_elements(rig, addresses, quantize, activations(x, form), 0)


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("hidden", [16, 272, 4096, 16384])
def test_a_norm_that_is_quantised(rig: Rig, hidden: int, form: ScaleForm) -> None:
    """Sums in another order may move a value across the border between two elements."""
    rows, eps = 70, 1e-5
    quantize, _ = operation(rig, rows, hidden, 128, STORE, form)
    rng = np.random.default_rng(hidden)
    x, factor = rng.standard_normal((rows, hidden)).astype(np.float32), rig.rounded(rng, 1, hidden)
    norm = Norm(Matrix(1, hidden, compute_element(rig.dtype), rig.halves(factor)), eps)
    op = RmsNorm(Buffer("residual", rows, hidden, Element.FP32), norm, quantize.x, quantize)
    addresses = {
        "residual": rig.upload(x),
        quantize.out.name: rig.memory.allocate(quantize.out.n_bytes),
        quantize.scales.name: rig.memory.allocate(quantize.scales.n_bytes),
    }
    launch(rig.kernels, rig.stream, RmsNormKernel().launches(op, Target(132)), addresses)
    expected = activations(normed(x, factor, np.float32(eps)), form)
    check_elements(rig, addresses, quantize, expected, 0.01)


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("hidden", [16, 272, 3840])
def test_a_norm_of_a_sum_that_is_quantised(rig: Rig, hidden: int, form: ScaleForm) -> None:
    rows, eps = 70, np.float32(1e-5)
    quantize, _ = operation(rig, rows, hidden, 128, STORE, form)
    rng, element = np.random.default_rng(hidden), compute_element(rig.dtype)
    before = rng.standard_normal((rows, hidden)).astype(np.float32)
    x, first, second = (rig.rounded(rng, n, hidden) for n in (rows, 1, 1))
    norms = [Norm(Matrix(1, hidden, element, rig.halves(factor)), float(eps)) for factor in (first, second)]
    residual = Buffer("residual", rows, hidden, Element.FP32)
    op = AddNorm(
        Buffer("sublayer", rows, hidden, element), norms[0], residual, quantize.x, norms[1], quantize
    )
    addresses = {
        "residual": rig.upload(before),
        "sublayer": rig.halves(x),
        quantize.out.name: rig.memory.allocate(quantize.out.n_bytes),
        quantize.scales.name: rig.memory.allocate(quantize.scales.n_bytes),
    }
    launch(rig.kernels, rig.stream, AddNormKernel().launches(op, Target(132)), addresses)
    total = before + normed(x, first, eps)
    np.testing.assert_allclose(
        rig.read(addresses["residual"], before.shape, True), total, rtol=1e-5, atol=1e-5
    )
    check_elements(rig, addresses, quantize, activations(normed(total, second, eps), form), 0.01)


def normed(x: Floats, factor: Floats, eps: np.float32) -> Floats:
    out: Floats = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * factor
    return out


def check_elements(
    rig: Rig, addresses: dict[str, int], quantize: Quantize, expected: Operand, other: float
) -> None:
    """`other`: the share of elements that may be neighbours of those expected."""
    rows, k = expected.elements.shape
    elements = read(rig, addresses[quantize.out.name], rows * k, np.uint8).reshape(rows, k)
    n_scales = quantize.scales.rows * quantize.scales.columns
    scales = read(rig, addresses[quantize.scales.name], 4 * n_scales, np.float32)
    scales = scales.reshape(expected.scales.shape)[:, :rows]
    np.testing.assert_allclose(scales, expected.scales[:, :rows], rtol=1e-5 if other else 0)
    # A NaN has either sign.
    got, wanted = (np.where((code & 0x7F) == 0x7F, 0x7F, code) for code in (elements, expected.elements))
    assert (got != wanted).mean() <= other
    assert np.abs(got.astype(int) - wanted).max() <= (1 if other else 0)


def read(rig: Rig, address: int, n_bytes: int, dtype: type[np.generic]) -> NDArray[np.generic]:
    return np.frombuffer(rig.memory.read(address, n_bytes), dtype)


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize(
    ("rows", "k", "n"),
    [(1, 64, 128), (65, 208, 768), (513, 1008, 384), (1088, 4096, 2944), (300, 14336, 512)],
)
def test_a_product(rig: Rig, rows: int, k: int, n: int, output: Epilogue, form: ScaleForm) -> None:
    x, w = inputs(rig, rows, k, n, output, form)
    check(rig, x, w, output, form, multiply(rig, x, w, n, output, form))


@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("n", [8, 408])
def test_rows_of_any_number_have_scales_by_row(rig: Rig, n: int, output: Epilogue) -> None:
    x, w = inputs(rig, 150, 272, n, output, ScaleForm.ROW)
    check(rig, x, w, output, ScaleForm.ROW, multiply(rig, x, w, n, output, ScaleForm.ROW))


@pytest.mark.parametrize("output", [STORE, ADD])
def test_the_last_block_of_rows_may_be_short(rig: Rig, output: Epilogue) -> None:
    x, w = inputs(rig, 150, 272, 328, output, ScaleForm.BLOCK)
    check(rig, x, w, output, ScaleForm.BLOCK, multiply(rig, x, w, 328, output, ScaleForm.BLOCK))


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("output", OUTPUTS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_tiles_of_every_size_in_two_bands(rig: Rig, columns: int, output: Epilogue, form: ScaleForm) -> None:
    """More tiles than are multiplied at once, in bands of two along x, the last of them not full."""
    rows, k, n = 3 * columns - 40, 336, 6016
    x, w = inputs(rig, rows, k, n, output, form)
    cut = TiledFp8Cut(replace(tiling(rows, k, n, output, columns), band=2), splits=1)
    check(rig, x, w, output, form, multiply(rig, x, w, n, output, form, cut))


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("output", [STORE, ADD])
@pytest.mark.parametrize("splits", [2, 3, 8])
def test_several_share_a_tiles_sums(rig: Rig, splits: int, output: Epilogue, form: ScaleForm) -> None:
    rows, k, n = 200, 4112, 1032
    x, w = inputs(rig, rows, k, n, output, form)
    cut = TiledFp8Cut(tiling(rows, k, n, output, 144), splits)
    check(rig, x, w, output, form, multiply(rig, x, w, n, output, form, cut))


@pytest.mark.parametrize("form", ScaleForm)
def test_long_sums_of_one_sign_lose_little(rig: Rig, form: ScaleForm) -> None:
    """The tensor cores round each sum towards zero, which adds up where all products have one sign: by
    row over 512 columns, by block over 128."""
    rows, k, n = 128, 14336, 256
    rng = np.random.default_rng(3)
    x = np.abs(rig.rounded(rng, rows, k))
    w = weight(np.abs(rig.rounded(rng, n, k, scale=k**-0.5)), form)
    expected = activations(x, form).values.astype(np.float64) @ w.values.T.astype(np.float64)
    got = multiply(rig, x, w, n, ADD, form)[:-1] - BEHIND
    lost = 1 - got / expected
    print(f"{form.value}: {lost.mean():.2e} on average, {np.abs(lost).max():.2e} at most")
    assert np.abs(lost).max() <= (4 * SUMS if form is ScaleForm.ROW else SUMS)


@pytest.mark.parametrize("form", ScaleForm)
@pytest.mark.parametrize("output", OUTPUTS)
def test_a_row_is_its_own(rig: Rig, output: Epilogue, form: ScaleForm) -> None:
    """E20, to the last bit: whatever the rows beside it hold, which may be padding and no numbers (E3)."""
    x, w = inputs(rig, 600, 512, 1024, output, form)
    before = multiply(rig, x, w, 1024, output, form)
    x[1::2] = rig.rounded(np.random.default_rng(1), 300, 512, scale=30)
    x[1::4, 7] = np.nan
    assert (multiply(rig, x, w, 1024, output, form)[:600:2] == before[:600:2]).all()
