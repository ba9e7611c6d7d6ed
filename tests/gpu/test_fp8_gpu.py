"""Elements of fp8 as halves in registers, on the GPU."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpu_backend.cuda.compile import compile_templates
from gpu_backend.cuda.driver import Device, Module, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.models.fp8 import NAN, SIGN, VALUES

CONVERT = """
#include "kernels/primitives/fp8.h"
template <typename Half>
__global__ void convert(const uint32_t* words, uint32_t* pairs) {
  blink::to_halves(words[threadIdx.x], pairs[2 * threadIdx.x], pairs[2 * threadIdx.x + 1], Half());
}
"""


@pytest.mark.parametrize("half", ["__nv_bfloat16", "__half"])
def test_every_code_as_a_half(half: str, tmp_path: Path) -> None:
    """Without loss. What is no number is 480 as bfloat16."""
    source = tmp_path / "convert.cu"
    source.write_text(CONVERT)
    device, stream = Device(), Stream()
    memory, name = DeviceMemory(device), f"convert<{half}>"
    cubin, symbols = compile_templates(source, device.arch, [name])
    codes, out = memory.allocate(256), memory.allocate(512)
    memory.write(codes, np.arange(256, dtype=np.uint8).data)
    Module(cubin).kernel(symbols[name]).launch((1, 1, 1), (64, 1, 1), stream, codes, out)
    stream.synchronize()
    bits, expected = np.frombuffer(memory.read(out, 512), np.uint16), VALUES.copy()
    if half == "__half":
        got = bits.view(np.float16).astype(np.float32)
    else:
        got = (bits.astype(np.uint32) << 16).view(np.float32)
        expected[[NAN, NAN | SIGN]] = 480, -480
    for owned in (stream, memory, device):
        owned.close()
    np.testing.assert_array_equal(got, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got)[there], np.signbit(expected)[there])
