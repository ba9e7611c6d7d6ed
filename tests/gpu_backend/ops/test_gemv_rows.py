"""Up to how many rows the GEMV serves a dense model's matmuls, by their weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matmuls import BF16, matmul
from model_config import model_config

from gpu_backend.cuda.chip import HOPPER, Capability, Chip
from gpu_backend.engines.native.model import matrix_of, target_of
from gpu_backend.models.description import Weight
from gpu_backend.models.quantization import ROUNDINGS, Codes, Form, GroupForm
from gpu_backend.ops.gemv import Gemv
from gpu_backend.ops.operations import Epilogue, Role


def most_rows(form: Form | None, hidden: int = 4096, capability: Capability = HOPPER) -> int:
    """Of one matmul. Others of the model may have other weights."""
    target = target_of(model_config(hidden=hidden), Chip(132, capability))
    weight = matrix_of(Weight(("",), (4096, hidden), scales=form), BF16)
    ops = {m: replace(matmul(Role.O, m, hidden, 4096, Epilogue.ADD), weight=weight) for m in range(1, 17)}
    served = [m for m, op in ops.items() if not Gemv().suits(op, target)]
    assert served == list(range(1, len(served) + 1))
    return len(served)


@pytest.mark.parametrize(
    ("form", "rows"),
    [(None, 4), (ROUNDINGS["fp8"], 4), (ROUNDINGS["int4"], 4), (ROUNDINGS["mxfp4"], 8),
     (GroupForm(Codes.E2M1, 16), 8)],
)  # fmt: skip
def test_rows_by_weights(form: Form | None, rows: int) -> None:
    assert most_rows(form) == rows


def test_rows_that_are_not_read_in_whole_rounds_have_none() -> None:
    assert most_rows(ROUNDINGS["mxfp4"], hidden=5120) == 0


@pytest.mark.parametrize("capability", [(8, 9), (10, 0), (12, 0)])
def test_bulk_copies_are_for_hopper(capability: Capability) -> None:
    assert most_rows(ROUNDINGS["int4"], capability=capability) == 0
    assert most_rows(None, capability=capability) == 8
