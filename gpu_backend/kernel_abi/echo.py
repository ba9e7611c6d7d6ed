"""Generated from kernels/echo/echo.h by scripts/generate_abi.py. Do not edit."""

# fmt: off
import numpy as np

EchoSlot = np.dtype({
    "names": ["seen", "due", "sequence", "state", "count", "limit", "output_offset", "reserved"],
    "formats": ["<u8", "<u8", "<u4", "<u4", "<u4", "<u4", "<u4", "<u4"],
    "offsets": [0, 8, 16, 20, 24, 28, 32, 36],
    "itemsize": 40,
})
