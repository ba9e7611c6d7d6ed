"""Matmuls of few rows beside experts on the GPU, with weights of halves, of fp8 and of four bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from launching import kernels_of, launch
from quantized import codes, weight
from test_tiled_gemm_gpu import TOLERANCE, Floats, Rig

from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element, compute_element
from gpu_backend.kernel_abi.fused_router import SUM_PLACES
from gpu_backend.models.half import rounded
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm
from gpu_backend.ops.gemv import Gemv
from gpu_backend.ops.gpu import Target
from gpu_backend.ops.matrix import Buffer, Matrix
from gpu_backend.ops.moe_one import router_sums
from gpu_backend.ops.operations import Epilogue, FusedRouter, MatMul, Norm, Role
from gpu_backend.ops.resident_gemv import ResidentGemv
from gpu_backend.ops.weights import scales_of

EPS = 1e-6
GROUPS = [
    GroupForm(Codes.INT4, 128),
    GroupForm(Codes.INT4, 32),
    GroupForm(Codes.E2M1, 32),
    GroupForm(Codes.E2M1, 16),
]


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


@pytest.fixture(params=["bfloat16", "float16"])
def rig(device: Device, request: pytest.FixtureRequest) -> Iterator[Rig]:
    memory, stream = DeviceMemory(device), Stream()
    yield Rig(memory, stream, None, request.param, device.n_multiprocessors)  # type: ignore[arg-type]
    stream.close()
    memory.close()


def uploaded(rig: Rig, w: Floats, form: Form | None) -> tuple[Matrix, Floats]:
    """A matrix, and the values that it stands for."""
    if form is None:
        return Matrix(*w.shape, compute_element(rig.dtype), rig.halves(w)), w
    if isinstance(form, GroupForm):
        made = codes(w, form, rig.dtype)
        in_memory = scales_of(form, *w.shape, rig.upload(made.scales))
        matrix = Matrix(*w.shape, Element.CODES, rig.upload(made.elements), in_memory, form)
        # Scales multiply sums of integers, which are not rounded.
        return matrix, made.values if form.codes is Codes.INT4 else rounded(made.values, rig.dtype)
    of = weight(w, form)
    scales = Matrix(*of.scales.shape, Element.FP32, rig.upload(of.scales))
    return Matrix(*w.shape, Element.FP8, rig.upload(of.elements), scales), of.values


def run(device: Device, rig: Rig, op: MatMul, addresses: dict[str, int], family: Gemv | ResidentGemv) -> None:
    target = Target(device.n_multiprocessors, has_experts=True, gemv_rows=8)
    assert family.suits(op, target) is None
    works = family.launches(op, target)
    kernels = kernels_of(device, works, compute_element(rig.dtype))
    launch(kernels, rig.stream, works, addresses)
    kernels.close()


@pytest.mark.parametrize("form", [None, *ScaleForm])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 2048, 5120), (2, 2048, 5120), (2, 1024, 136)])
def test_a_product_of_a_norm(
    device: Device, rig: Rig, m: int, k: int, n: int, form: ScaleForm | None
) -> None:
    rng, element = np.random.default_rng(k), compute_element(rig.dtype)
    matrix, values = uploaded(rig, rig.rounded(rng, n, k, scale=k**-0.5), form)
    residual, factor = rng.standard_normal((m, k)).astype(np.float32), rig.rounded(rng, k)
    norm = Norm(Matrix(1, k, element, rig.halves(factor)), EPS)
    x, out = Buffer("residual", m, k, Element.FP32), Buffer("qkv", m, n, element)
    addresses = {"residual": rig.upload(residual), "qkv": rig.halves(np.zeros((m, n), np.float32))}
    run(device, rig, MatMul(Role.QKV, matrix, x, out, Epilogue.STORE, norm=norm), addresses, ResidentGemv())
    scale = 1 / np.sqrt((residual**2).mean(axis=1, keepdims=True) + np.float32(EPS))
    expected = residual * scale * factor @ values.T
    got = rig.read(addresses["qkv"], (m, n), fp32=False)
    assert np.linalg.norm(got - expected) <= 2 * TOLERANCE[rig.dtype] * np.linalg.norm(expected)


@pytest.mark.parametrize("form", [None, *ScaleForm])
@pytest.mark.parametrize(
    ("m", "k", "n", "count"), [(1, 4096, 2048, 128), (2, 4096, 2048, 0), (1, 1024, 136, 9)]
)
def test_a_product_that_is_added(
    device: Device, rig: Rig, m: int, k: int, n: int, count: int, form: ScaleForm | None
) -> None:
    """And the sums of the router behind it, of `count` experts."""
    rng, element = np.random.default_rng(k), compute_element(rig.dtype)
    matrix, values = uploaded(rig, rig.rounded(rng, n, k, scale=k**-0.5), form)
    x, residual = rig.rounded(rng, m, k), rng.standard_normal((m, n)).astype(np.float32)
    addresses = {"attention": rig.halves(x), "residual": rig.upload(residual)}
    part, factor, router = None, rig.rounded(rng, n), rig.rounded(rng, max(count, 1), n)
    if count:
        addresses["router_sums"] = rig.upload(np.zeros((SUM_PLACES, count), np.int64))
        norm = Norm(Matrix(1, n, element, rig.halves(factor)), EPS)
        part = FusedRouter(norm, Matrix(count, n, element, rig.halves(router)), router_sums(count))
    buffers = (Buffer("attention", m, k, element), Buffer("residual", m, n, Element.FP32))
    run(device, rig, MatMul(Role.O, matrix, *buffers, Epilogue.ADD, router=part), addresses, ResidentGemv())
    got, expected = rig.read(addresses["residual"], (m, n), fp32=True), residual + x @ values.T
    assert np.linalg.norm(got - expected) <= 1e-5 * np.linalg.norm(expected)
    if count:
        raw = np.frombuffer(rig.memory.read(addresses["router_sums"], 8 * SUM_PLACES * count), np.int64)
        sums = raw.reshape(SUM_PLACES, count).sum(axis=0) / 2.0**32
        logits = (got[0].astype(np.float64) * factor) @ router.T.astype(np.float64)
        assert np.linalg.norm(sums - logits) <= 1e-5 * np.linalg.norm(logits)


@pytest.mark.parametrize("form", [None, *ScaleForm, *GROUPS])
@pytest.mark.parametrize("epilogue", [Epilogue.STORE, Epilogue.ADD, Epilogue.GATED])
@pytest.mark.parametrize(("m", "k", "n"), [(1, 2048, 5120), (8, 4096, 2048), (5, 704, 136), (3, 6656, 264)])
def test_gemv(
    device: Device, rig: Rig, m: int, k: int, n: int, epilogue: Epilogue, form: Form | None
) -> None:
    """Shares of k that are uneven; of codes, a stage that half of the warps have a part of."""
    if isinstance(form, GroupForm) and k == 704:
        k = 2560
    rng, element, adds = np.random.default_rng(k), compute_element(rig.dtype), epilogue is Epilogue.ADD
    rows = 2 * n if epilogue is Epilogue.GATED else n
    matrix, values = uploaded(rig, rig.rounded(rng, rows, k, scale=k**-0.5), form)
    x, start = rig.rounded(rng, m, k), rig.rounded(rng, m, n)
    out = Buffer("out", m, n, Element.FP32 if adds else element)
    addresses = {"x": rig.halves(x), "out": rig.upload(start) if adds else rig.halves(start)}
    run(device, rig, MatMul(Role.DOWN, matrix, Buffer("x", m, k, element), out, epilogue), addresses, Gemv())
    got, expected = rig.read(addresses["out"], (m, n), fp32=adds), x @ values.T
    if epilogue is Epilogue.GATED:
        gate, up = np.hsplit(expected, 2)
        expected = gate / (1 + np.exp(-gate)) * up
    tolerance = 1e-5 if adds else TOLERANCE[rig.dtype]
    if rig.dtype == "float16" and isinstance(form, GroupForm) and form.codes is Codes.INT4:
        # of patterns around 1,024; rounding the weights would cost as much
        tolerance = max(tolerance, 2**-12)
    error = np.linalg.norm(got - (start if adds else 0) - expected)
    assert error <= tolerance * np.linalg.norm(expected)
