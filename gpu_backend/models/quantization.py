"""How weights of a narrow type are stored: which of them, and what their elements are multiplied by."""

from __future__ import annotations

from enum import Enum

SCALE_BLOCK = 128  # rows, and columns, that share a scale by block


class ScaleForm(Enum):
    """Which elements of an fp8 matrix share a scale."""

    ROW = "by row"  # scales [rows][1]: value = element * scales[row][0]
    BLOCK = "by block"  # [ceil(rows/128)][ceil(columns/128)]: value = element * scales[row/128][column/128]

    def shape(self, rows: int, columns: int) -> tuple[int, int]:
        """That of the scales of a matrix of this shape."""
        if self is ScaleForm.ROW:
            return rows, 1
        return -(-rows // SCALE_BLOCK), -(-columns // SCALE_BLOCK)
