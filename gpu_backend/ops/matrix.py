"""What operations read and write: weights, buffers of activations, and the KV cache.

Each knows its sizes and its type. Addresses are 0 where nothing is allocated yet: what a step consists of,
and what serves it, does not depend on them.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpu_backend.element import HALF_TYPES, Element
from gpu_backend.models.quantization import Form, GroupForm, ScaleForm


@dataclass(frozen=True)
class Matrix:
    """A weight [rows][columns], row-major; a vector is a matrix of one row.

    `scales`: what elements of a narrow type are multiplied by, fp32, in one of the shapes of ScaleForm; None
    where the type holds the values themselves. Of codes of four bits, which have a form of `groups`, they lie
    as kernels/primitives/codes.h has them.

    `buffer`: the matrix lies at the start of this buffer, where a kernel of the step has put it, and not at
    `address`.

    In memory the columns of an fp8 matrix stand in another order: of each 16 consecutive bytes of a row, the
    bytes 4q to 4q+3 hold the columns 2q, 2q+1, 2q+8 and 2q+9 (kernels/primitives/fp8.h says why). `columns`
    is a multiple of 16. Those of codes, of which it is a multiple of 32, are in the order of
    gpu_backend.models.fourbit.ORDER.
    """

    rows: int
    columns: int
    element: Element
    address: int = 0
    scales: Matrix | None = None
    groups: GroupForm | None = None
    buffer: str = ""

    @property
    def n_bytes(self) -> int:
        own = self.rows * self.columns * self.element.n_bits // 8
        return own + (self.scales.n_bytes if self.scales else 0)

    @property
    def scale_form(self) -> Form | None:
        """None without scales. A matrix of one row and one block is by row, which is the same."""
        if self.scales is None or self.groups:
            return self.groups
        return ScaleForm.ROW if self.scales.rows == self.rows else ScaleForm.BLOCK


def half_only(*weights: Matrix) -> str | None:
    """Why a kernel that multiplies by halves does not serve; None where all weights are halves."""
    narrow = next((weight.element for weight in weights if weight.element not in HALF_TYPES), None)
    return f"its weights are halves, not {narrow.dtype}" if narrow else None


@dataclass(frozen=True)
class Buffer:
    """Activations [rows][columns] at the start of the buffer `name`, which all steps share (C4)."""

    name: str
    rows: int
    columns: int
    element: Element

    @property
    def n_bytes(self) -> int:
        return self.rows * self.columns * self.element.n_bytes


@dataclass(frozen=True)
class KvCache:
    """Of each layer the keys, then the values, each [page][kv_head][page_size][head_dim], of halves or fp8.

    `maps`: where each layer's tensor map for decode attention is. `host_address`: where page-locked host
    memory has further pages, each [layer][keys, values][kv_head][page_size][head_dim].
    """

    layers: int
    pages: int
    page_size: int
    kv_heads: int
    head_dim: int
    element: Element
    address: int = 0
    maps: int = 0
    host_pages: int = 0
    host_address: int = 0

    @property
    def row_bytes(self) -> int:
        """A token's keys of one head, or its values, in one layer."""
        return self.head_dim * self.element.n_bytes

    @property
    def page_bytes(self) -> int:
        """Keys and values of a page's tokens, all layers."""
        token = self.layers * self.kv_heads * self.head_dim
        return 2 * token * self.page_size * self.element.n_bytes

    @property
    def n_bytes(self) -> int:
        return self.pages * self.page_bytes

    @property
    def layer_bytes(self) -> int:
        """The keys of one layer, or its values, which come right after them."""
        return self.n_bytes // (2 * self.layers)

    def keys(self, layer: int) -> int:
        return self.address + 2 * layer * self.layer_bytes

    def values(self, layer: int) -> int:
        return self.keys(layer) + self.layer_bytes
