"""Elements of fp8 as halves on the emulator."""

from __future__ import annotations

import numpy as np
import pytest
from emulation import Emulate
from halves import floats

from gpu_backend.models.fp8 import NAN, SIGN, in_register_order
from gpu_backend.models.fp8 import VALUES as FP8_VALUES


@pytest.mark.parametrize("is_float16", [False, True])
def test_every_code_as_a_half(emulate: Emulate, is_float16: bool) -> None:
    """In the order of bytes and without loss. What is no number is 480 as bfloat16."""
    codes = np.arange(256, dtype=np.uint8)
    pairs = np.zeros((64, 2, 2), np.uint16)
    emulate("to_halves", codes, pairs, 64, is_float16)
    expected = FP8_VALUES.copy()
    if not is_float16:
        expected[[NAN, NAN | SIGN]] = 480, -480
    values = (pairs.view(np.float16).astype(np.float32) if is_float16 else floats(pairs)).reshape(256)
    np.testing.assert_array_equal(values, expected)
    assert (np.signbit(values) == (codes >= SIGN))[~np.isnan(expected)].all()


def test_a_word_holds_what_a_thread_of_the_tensor_cores_needs(emulate: Emulate) -> None:
    """Word q of a group of 16 columns: columns 2q and 2q + 1, then those 8 further on."""
    row = np.arange(32, dtype=np.uint8)[None] + 8
    pairs = np.zeros((8, 2, 2), np.uint16)
    emulate("to_halves", in_register_order(row), pairs, 8, False)
    for group in range(2):
        for q in range(4):
            first = 16 * group + 2 * q
            columns = [[first, first + 1], [first + 8, first + 9]]
            np.testing.assert_array_equal(floats(pairs)[4 * group + q], FP8_VALUES[row[0, columns]])
