"""Random weights of four bits: of the wanted spread, everywhere, and not the same everywhere."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu_backend.element import Element
from gpu_backend.engines.native import random_codes
from gpu_backend.engines.native.random_codes import RandomCodes
from gpu_backend.models.fourbit import E2M1, FACTORS, INTEGER_BITS, MIDDLE, ORDER, SIGN_BITS, SIZE_BITS
from gpu_backend.models.quantization import CODE_GRAIN, Codes, GroupForm
from gpu_backend.ops.matrix import Matrix

STD = 0.02
MXFP4, INT4 = GroupForm(Codes.E2M1, 32), GroupForm(Codes.INT4, 64)


@dataclass
class Memory:
    """Of a GPU, as far as it is written."""

    written: dict[int, bytes] = field(default_factory=dict)

    def write(self, address: int, data: memoryview) -> None:
        self.written[address] = bytes(data)

    def at(self, address: int, n_bytes: int) -> NDArray[np.uint8]:
        """What lies there, every byte of it written once."""
        out, done = bytearray(), address
        while done < address + n_bytes:
            out += (part := self.written.pop(done))
            done += len(part)
        assert len(out) == n_bytes
        return np.frombuffer(bytes(out), np.uint8)


def matrix_of(form: GroupForm, address: int, rows: int, columns: int) -> Matrix:
    scales = Matrix(rows, columns // form.group, Element.FP32, address + (1 << 40))
    return Matrix(rows, columns, Element.CODES, address, scales=scales, groups=form)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_codes, "ROWS", 64)
    monkeypatch.setattr(random_codes, "COLUMNS", 1024)


def codes_at(memory: Memory, matrix: Matrix) -> NDArray[np.uint8]:
    """Read bit by bit, as kernels/primitives/codes.h says."""
    halves = memory.at(matrix.address, matrix.rows * matrix.columns // 2).view(np.uint16)
    assert matrix.groups is not None
    if matrix.groups.codes is Codes.INT4:
        ordered = [halves >> bit & 15 for bit in INTEGER_BITS]
    else:
        bits = zip(SIZE_BITS, SIGN_BITS, strict=True)
        ordered = [halves >> size & 7 | (halves >> sign & 1) << 3 for size, sign in bits]
    codes = np.empty((halves.size * 4 // CODE_GRAIN, CODE_GRAIN), np.uint8)
    codes[:, ORDER] = np.stack(ordered, 1).reshape(codes.shape)
    return codes.reshape(matrix.rows, matrix.columns)


def test_powers_of_two_and_numbers_of_fp4() -> None:
    memory = Memory()
    fill = RandomCodes(memory, "bfloat16", 1).fill  # type: ignore[arg-type]
    seen = []
    for address in (0, 1 << 32):
        matrix = matrix_of(MXFP4, address, 300, 1024)
        fill(matrix, MXFP4, STD)
        codes = codes_at(memory, matrix)
        assert matrix.scales is not None
        exponents = memory.at(matrix.scales.address, 300 * 1024 // 32)
        values = E2M1[codes] * 2.0 ** (exponents.astype(np.float64) - 127 - FACTORS["bfloat16"]).repeat(
            32
        ).reshape(300, 1024)
        assert STD / 1.5 < values.std() < STD * 1.5
        assert abs(values.mean()) < STD / 20
        assert (np.bincount(codes.reshape(-1), minlength=16) > codes.size / 20).all()
        seen.append(codes)
    assert (seen[0] != seen[1]).mean() > 0.8
    assert not memory.written


def test_integers_with_zeros() -> None:
    memory = Memory()
    matrix = matrix_of(INT4, 0, 100, 640)
    RandomCodes(memory, "bfloat16", 1).fill(matrix, INT4, STD)  # type: ignore[arg-type]
    codes = codes_at(memory, matrix)
    assert matrix.scales is not None
    words = memory.at(matrix.scales.address, 4 * 100 * 640 // 64).view(np.uint32)
    scales = (words << 16).view(np.float32).repeat(64).reshape(100, 640)
    values = (codes.astype(np.float32) - MIDDLE) * scales
    assert STD * 0.9 < values.std() < STD * 1.1
    assert not memory.written
