"""Rounding to fp8 in torch: what engines over fp8 are compared with."""

from __future__ import annotations

import torch
from torch import Tensor

from gpu_backend.models.quantization import SCALE_BLOCK, ScaleForm


def round_to_fp8(x: Tensor, form: ScaleForm) -> Tensor:
    """The values of x [..., columns] in fp8 with a scale for each row, or for 128 columns of it."""
    width = x.shape[-1] if form is ScaleForm.ROW else SCALE_BLOCK
    parts = x.float().unflatten(-1, (-1, width))
    scales = parts.abs().amax(-1, keepdim=True) / 448
    scales = torch.where(scales > 0, scales, 1)
    rounded = (parts / scales).clamp(-448, 448).to(torch.float8_e4m3fn).float() * scales
    return rounded.flatten(-2).to(x.dtype)
