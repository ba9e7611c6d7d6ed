"""The types of a matrix's or a buffer's elements: one enum, with what each part of the system calls them."""

from __future__ import annotations

from enum import Enum


class Element(Enum):
    """`dtype` is a checkpoint's name, `cpp` the type in the kernels, `cuda_data_type` cudaDataType. Of CODES,
    two are in a byte."""

    BF16 = ("bfloat16", 16, "__nv_bfloat16", 14)
    FP16 = ("float16", 16, "__half", 2)
    FP32 = ("float32", 32, "float", 0)
    FP8 = ("float8_e4m3fn", 8, "blink::Fp8", 28)
    CODES = ("codes of four bits", 4, "uint8_t", 8)
    U8 = ("uint8", 8, "uint8_t", 8)
    U32 = ("uint32", 32, "uint32_t", 12)
    I64 = ("int64", 64, "int64_t", 24)

    def __init__(self, dtype: str, n_bits: int, cpp: str, cuda_data_type: int) -> None:
        self.dtype = dtype
        self.n_bits = n_bits
        self.cpp = cpp
        self.cuda_data_type = cuda_data_type

    @property
    def n_bytes(self) -> int:
        """Of one element; not of CODES."""
        assert self.n_bits % 8 == 0, self
        return self.n_bits // 8


HALF_TYPES = (Element.BF16, Element.FP16)  # those that the kernels multiply


def compute_element(dtype: str) -> Element:
    """What the engine computes in: the checkpoint's type, or bfloat16 for an fp32 checkpoint."""
    return next((element for element in HALF_TYPES if element.dtype == dtype), Element.BF16)
