"""A model's tensors, by the names and in the shapes that its description asks for."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.description import Model, Weight
from gpu_backend.models.fourbit import EXPONENTS, Grouped
from gpu_backend.models.fourbit import quantize as quantize_groups
from gpu_backend.models.fp8 import FP8, NAN, Bytes, Floats, dequantized, quantize
from gpu_backend.models.half import to_float32
from gpu_backend.models.quantization import GroupForm, ScaleForm, StoredGroups, StoredScales
from gpu_backend.weights.packed import PackedTensor
from gpu_backend.weights.safetensors import CheckpointError, Tensor
from gpu_backend.weights.shards import Shards

SCALE_SUFFIXES = ("_scale", "_scale_inv")  # of the tensor with an fp8 tensor's scales; both multiply
# The bits from which on a positive number is infinite or none, and the integer type that holds them.
INFINITY = {"bfloat16": ("u2", 0x7F80), "float16": ("u2", 0x7C00), "float32": ("u4", 0x7F800000)}
CHECKED_AT_ONCE = 1 << 18  # elements, which stay in a core's cache


class Checkpoint:
    """The tensors of `directory`: those of model.safetensors, or those of model.safetensors.index.json.

    Views keep their file mapped for as long as they live. Raises CheckpointError, also where a tensor that is
    asked for cannot be read.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._shards = Shards(directory)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shards)

    def __contains__(self, name: str) -> bool:
        return name in self._shards

    def holds(self, name: str) -> bool:
        """Whether the tensor is in the file that should have it: an index may name some that no file has."""
        return self._shards.holds(name)

    def has(self, weight: Weight) -> bool:
        """Whether the checkpoint names the first of a weight's tensors, as it is or in four bits."""
        packed = isinstance(weight.stored, StoredGroups) and self._packed(weight)[0].present
        return packed or weight.tensors[0] in self

    def entry(self, name: str) -> Tensor:
        """The tensor with its type and its file."""
        return self._shards.tensor(name)

    def tensor(self, name: str) -> NDArray[Any]:
        """A read-only view in the tensor's shape: float16, float32, uint16 with the bits of bfloat16, uint8
        with those of fp8, or the integers of a packed matrix."""
        return self.entry(name).data

    def dtype(self, name: str) -> str:
        """ "bfloat16", "float16", "float32" or "float8_e4m3fn"."""
        return self.entry(name).dtype

    def float32(self, name: str) -> NDArray[np.float32]:
        """The tensor's values, converted if need be."""
        return to_float32(self.tensor(name), self.dtype(name))

    def release(self, name: str) -> None:
        """Takes the pages of a tensor that was read out of this process: a later read maps them again.

        Without it, loading would pile the whole checkpoint up as resident memory.
        """
        entry = self.entry(name)
        first = -(-entry.begin // mmap.PAGESIZE) * mmap.PAGESIZE
        end = (entry.begin + entry.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if end > first:
            entry.mapped.madvise(mmap.MADV_DONTNEED, first, end - first)

    def parts(self, weight: Weight) -> Iterator[tuple[NDArray[Any], str]]:
        """What a weight is stacked from, with its dtype: its tensors, in the weight's order and with its
        offset. What is stored in fp8 or in four bits comes as its values, in fp32.

        A part leaves this process's memory when the next one is asked for. Raises CheckpointError for
        elements that are no finite numbers, which would spoil the answers of some requests and not of others.
        """
        if self._is_packed(weight):
            yield from ((part.values(), "float32") for part in self._packed_parts(weight))
            return
        row = 0
        for name in weight.tensors:
            tensor, dtype = self._finite(name), self.dtype(name)
            if isinstance(weight.stored, StoredScales) and dtype == FP8:
                tensor, dtype = dequantized(tensor, self.scales(name, weight.stored)), "float32"
            n_rows = len(tensor)
            if weight.order is not None:
                tensor = tensor[weight.order.rows(row, n_rows)]
            if weight.offset:
                tensor, dtype = to_float32(tensor, dtype) + np.float32(weight.offset), "float32"
            matrices = (tensor,) if weight.matrices is None else tensor
            for matrix in matrices:  # what is converted is one expert's
                yield weight.arranged(matrix), dtype
            row += n_rows
            self.release(name)

    def fp8_parts(self, weight: Weight) -> Iterator[tuple[Bytes, Floats]]:
        """What a weight that the engine has in fp8 is stacked from: elements, and scales of its form. What
        is stored in another type is rounded to fp8.

        A part leaves this process's memory when the next one is asked for. Raises CheckpointError for
        elements that are no numbers, which kernels would take for numbers.
        """
        assert isinstance(weight.scales, ScaleForm)
        if weight.stored is None:
            yield from (quantize(to_float32(*part), weight.scales) for part in self.parts(weight))
            return
        assert isinstance(weight.stored, StoredScales)
        row = 0
        for name in weight.tensors:
            elements, scales = self._finite(name), self.scales(name, weight.stored)
            n_rows = len(elements)
            if weight.order is not None:  # within blocks, where there are such
                order = weight.order.rows(row, n_rows)
                elements, scales = elements[order], scales[order] if len(scales) == n_rows else scales
            yield elements, scales
            row += n_rows
            self.release(name)

    def group_parts(self, weight: Weight) -> Iterator[Grouped]:
        """What a weight that the engine has in four bits is stacked from, in groups of its form. What is
        stored in another type is rounded.

        A part leaves this process's memory when the next one is asked for. Raises CheckpointError.
        """
        assert isinstance(weight.scales, GroupForm)
        if weight.stored is None:
            for part in self.parts(weight):
                half = part[1] if part[1] in EXPONENTS else "bfloat16"  # in which it will be multiplied
                yield quantize_groups(to_float32(*part), weight.scales, half)
            return
        yield from (part.in_groups_of(weight.scales.group) for part in self._packed_parts(weight))

    def _packed_parts(self, weight: Weight) -> Iterator[Grouped]:
        """Of a weight in four bits, in its order."""
        row = 0
        for tensor in self._packed(weight):
            for part in tensor.parts():
                n_rows = len(part.codes)
                if weight.order is not None:
                    part = part.rows(weight.order.rows(row, n_rows))
                if weight.interleaved:  # gate and up in turn
                    part = part.rows(np.arange(n_rows).reshape(-1, 2).T.reshape(-1))
                yield part
                row += n_rows

    def _packed(self, weight: Weight) -> list[PackedTensor]:
        """The tensors of a weight that config.json says to be in four bits."""
        assert isinstance(weight.stored, StoredGroups)
        return [PackedTensor(self, name, weight.stored, weight.shape[1]) for name in weight.tensors]

    def _is_packed(self, weight: Weight) -> bool:
        """Whether a weight is in four bits: a head or a router may be so or not, by config.json."""
        if not isinstance(weight.stored, StoredGroups):
            return False
        return weight.scales is not None or self._packed(weight)[0].present

    def _finite(self, name: str) -> NDArray[Any]:
        """The tensor. Raises CheckpointError where an element is infinite or no number."""
        tensor, dtype = self.tensor(name), self.dtype(name)
        flat = tensor.reshape(-1)
        for at in range(0, flat.size, CHECKED_AT_ONCE):
            if not _all_finite(flat[at : at + CHECKED_AT_ONCE], dtype):
                raise CheckpointError(
                    f"{self.entry(name).file}: '{name}' holds elements that are no finite numbers"
                )
        return tensor

    def scales(self, name: str, stored: StoredScales) -> Floats:
        """Those of an fp8 tensor, in the form in which they are loaded. Raises CheckpointError."""
        rows, columns = self.tensor(name).shape
        found = [name + suffix for suffix in SCALE_SUFFIXES if name + suffix in self]
        if not found:
            wanted = " or ".join(f"'{name}{suffix}'" for suffix in SCALE_SUFFIXES)
            raise CheckpointError(f"{self.entry(name).file}: '{name}' is fp8, and has no {wanted} beside it")
        values = self._positive(found[0])
        shape, wanted_shape = values.shape, stored.shape(rows, columns)
        if tuple(size for size in shape if size > 1) != wanted_shape:
            raise CheckpointError(
                f"{self.entry(name).file}: '{found[0]}' has shape {shape}; scales by {stored.value} of "
                f"{rows} x {columns} elements have {wanted_shape or (1,)}"
            )
        if stored is StoredScales.TENSOR:
            return np.broadcast_to(values.reshape(1, 1), ScaleForm.ROW.shape(rows, columns))
        return values.reshape(stored.form.shape(rows, columns))

    def cache_scale(self, names: tuple[str, ...]) -> float:
        """The number that a checkpoint has by one of these names, 1 where it has none: k_scale and v_scale of
        gpu_backend.models.description.Layer. Raises CheckpointError."""
        found = [name for name in names if name in self]
        if not found:
            return 1.0
        value = self._positive(found[0])
        if value.size != 1 or not value.item() > 0:
            file = self.entry(found[0]).file
            raise CheckpointError(f"{file}: '{found[0]}' must be one positive number, found {value.tolist()}")
        return float(value.item())

    def _positive(self, name: str) -> Floats:
        """The values of a tensor of scales. Raises CheckpointError for what cannot be one."""
        if self.dtype(name) == FP8:
            raise CheckpointError(f"{self.entry(name).file}: '{name}' holds scales in fp8")
        values = self.float32(name)
        wrong = values[~((values >= 0) & np.isfinite(values))]
        if wrong.size:
            raise CheckpointError(
                f"{self.entry(name).file}: '{name}' holds {wrong.flat[0]}, which is no scale"
            )
        return values

    def stacked(self, weight: Weight) -> NDArray[np.float32]:
        """The values of a weight, in its shape, contiguous: of a narrow one, element times scale."""
        self.check(weight)
        out = np.empty(weight.shape, np.float32)
        row = 0
        if isinstance(weight.scales, GroupForm):
            values: Iterator[Floats] = (part.values() for part in self.group_parts(weight))
        elif weight.scales is not None:
            values = (dequantized(*part) for part in self.fp8_parts(weight))
        else:
            values = (to_float32(*part) for part in self.parts(weight))
        for part in values:
            out[row : row + len(part)] = part
            row += len(part)
        return out

    def find_all(self, model: Model) -> None:
        """Raises CheckpointError unless every tensor of the weights is there; touches headers only."""
        for weight in model.weights():
            if self._is_packed(weight):
                for packed in self._packed(weight):
                    packed.find()
                continue
            for name in weight.tensors:
                self.tensor(name)

    def check_all(self, model: Model, kv_fp8: bool = False) -> None:
        """Raises CheckpointError unless every weight can be read, and with `kv_fp8` the scales of keys and
        values; touches headers and scales only."""
        for weight in model.weights():
            self.check(weight)
        for layer in model.layers if kv_fp8 else ():
            self.cache_scale(layer.k_scale), self.cache_scale(layer.v_scale)

    def check(self, weight: Weight) -> None:
        """Raises CheckpointError unless every tensor of `weight` is there, is of the type that config.json
        says, and they stack to its shape."""
        packed = self._packed(weight) if self._is_packed(weight) else []
        if packed:
            shapes = [tensor.shape for tensor in packed]
        else:
            shapes = [self.tensor(name).shape for name in weight.tensors]
        rows = sum(shape[0] for shape in shapes if shape)
        wanted = weight.shape
        if weight.matrices is not None:
            of_one = (wanted[0] // weight.matrices, *wanted[1:])
            wanted = (weight.matrices, *(reversed(of_one) if weight.transposed and not packed else of_one))
        if any((rows, *shape[1:]) != wanted for shape in shapes):
            file = packed[0].file if packed else self.entry(weight.tensors[0]).file
            raise CheckpointError(
                f"{file}: {' + '.join(weight.tensors)} have shapes "
                f"{', '.join(map(str, shapes))}; config.json asks for {wanted} together"
            )
        for tensor in packed:
            tensor.check()
        if packed:
            return
        row = 0
        for name, shape in zip(weight.tensors, shapes, strict=True):
            self._check_type(name, weight)
            if weight.scales is ScaleForm.BLOCK and row % SCALE_BLOCK:
                file = self.entry(name).file
                raise CheckpointError(
                    f"{file}: '{name}' with scales by block is stacked behind {row} rows, no multiple of "
                    f"{SCALE_BLOCK}"
                )
            row += shape[0]

    def _check_type(self, name: str, weight: Weight) -> None:
        """A head or a router may be narrow or not: the engine has them in its own type."""
        dtype, file = self.dtype(name), self.entry(name).file
        if dtype not in (*INFINITY, FP8):
            raise CheckpointError(f"{file}: '{name}' is {dtype}, but by config.json it holds no such codes")
        if dtype == FP8 and not isinstance(weight.stored, StoredScales):
            raise CheckpointError(f"{file}: '{name}' is fp8, but by config.json it is not quantized so")
        if dtype != FP8 and weight.stored is not None and weight.scales is not None:
            raise CheckpointError(f"{file}: '{name}' is {dtype}, but by config.json it is fp8")
        if dtype == FP8 and isinstance(weight.stored, StoredScales):
            self.scales(name, weight.stored)

    def _entry(self, name: str) -> Tensor:
        return self._shards.tensor(name)


def _all_finite(values: NDArray[Any], dtype: str) -> bool:
    """Whether all are finite: by the largest of their bits, which takes no memory and reads at its speed."""
    if dtype == FP8:
        return bool((values & NAN).max() != NAN)
    bits, infinity = INFINITY[dtype]
    sign = 1 << (8 * values.itemsize - 1)
    negative = values.view(bits).max() >= sign + infinity
    positive = values.view(bits.replace("u", "i")).max() >= infinity
    return not (negative or positive)
