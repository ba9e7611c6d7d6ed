"""A launch as data: a kernel's instance, its grid, and arguments whose addresses are filled in at the end."""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from gpu_backend.cuda.driver import ALL_SHARED_BYTES, Argument, Dim
from gpu_backend.cuda.tensor_map import tensor_map
from gpu_backend.ops.matrix import Buffer, Matrix


class FromStep(Enum):
    """Arguments by value that differ between step sets and engines."""

    STEP_SET = auto()  # blink_step_set
    TABLES = auto()  # blink_tables
    MEGAKERNEL_MODEL = auto()  # blink_megakernel_model


@dataclass(frozen=True)
class Inside:
    """`offset` bytes behind a buffer's start."""

    buffer: Buffer
    offset: int


Address = Buffer | Matrix | Inside | None  # None is the null pointer


@dataclass(frozen=True)
class Tensor:
    """A tensor map, as gpu_backend.cuda.tensor_map.tensor_map makes it of these."""

    of: Buffer | Matrix | int
    shape: tuple[int, ...]
    box: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    swizzle: bool = True
    fp32: bool = False


@dataclass(frozen=True)
class Struct:
    """A struct by value, packed as the module struct does: the values of `parts`, addresses included. What
    `head` stands for comes in front of them."""

    format: str
    parts: tuple[Address | int | float, ...]
    head: FromStep | None = None


Operand = Address | int | float | bytes | FromStep | Tensor | Struct


@dataclass(frozen=True)
class Place:
    """Where a step works: addresses of buffers by name, and the structs that it is given by value."""

    addresses: Mapping[str, int]
    by_value: Mapping[FromStep, bytes]

    def address(self, of: Address) -> int:
        match of:
            case None:
                return 0
            case Matrix():
                return self.addresses[of.buffer] if of.buffer else of.address
            case Inside():
                return self.addresses[of.buffer.name] + of.offset
            case _:
                return self.addresses[of.name]

    def argument(self, operand: Operand) -> Argument:
        """The operand as Kernel.launch takes it. Raises CudaError."""
        match operand:
            case FromStep():
                return self.by_value[operand]
            case Tensor():
                address = operand.of if isinstance(operand.of, int) else self.address(operand.of)
                sizes = (operand.shape, operand.box, operand.strides)
                return tensor_map(address, *sizes, swizzle=operand.swizzle, fp32=operand.fp32)
            case Struct():
                head = b"" if operand.head is None else self.by_value[operand.head]
                values = (p if isinstance(p, int | float) else self.address(p) for p in operand.parts)
                return head + struct.pack(operand.format, *values)
            case int() | float() | bytes():
                return operand
            case _:
                return self.address(operand)


@dataclass(frozen=True)
class Launch:
    """One kernel of a step. `kernel` is the C++ name of its instance; `cluster` counts blocks along x.

    `overlap`: it may start before its predecessor has ended (E7). `divided`: bytes of shared memory that it
    asks a multiprocessor to divide off its L1 (E23): all, or gpu.BESIDE_L1_SHARED_BYTES if it needs L1.
    """

    kernel: str
    grid: Dim
    block: Dim
    operands: tuple[Operand, ...]
    shared_bytes: int = 0
    cluster: int = 0
    overlap: bool = True
    divided: int = ALL_SHARED_BYTES
    scratch: tuple[Buffer, ...] = ()  # buffers that operands do not show whole

    @property
    def buffers(self) -> Iterator[Buffer]:
        """All that it works in."""
        yield from self.scratch
        yield from _buffers(self.operands)


@dataclass(frozen=True)
class LibraryGemm:
    """One call of cuBLAS: out (+)= x times weight transposed; `adds`: to what is in `out`."""

    weight: Matrix
    x: Buffer
    out: Buffer
    adds: bool = False

    @property
    def buffers(self) -> Iterator[Buffer]:
        yield from (self.x, self.out)


@dataclass(frozen=True)
class PlanCall:
    """One call of a plan of TensorRT, which computes `operations`.

    `name` says in messages where in a step it stands; calls of the same `key` are of the same plan. `reads`
    and `writes`: by the library's names for them, the buffers and weights that it reads, and the buffers that
    it writes, none of which it reads as well.
    """

    name: str
    key: Hashable
    operations: tuple[Any, ...]
    reads: tuple[tuple[str, Buffer | Matrix], ...]
    writes: tuple[tuple[str, Buffer], ...]

    @property
    def bound(self) -> tuple[tuple[str, Buffer | Matrix], ...]:
        return (*self.reads, *self.writes)

    @property
    def buffers(self) -> Iterator[Buffer]:
        yield from (place for _, place in self.bound if isinstance(place, Buffer))


Work = Launch | LibraryGemm | PlanCall


def _buffers(operands: tuple[Operand, ...]) -> Iterator[Buffer]:
    for operand in operands:
        match operand:
            case Buffer():
                yield operand
            case Inside():
                yield operand.buffer
            case Tensor() if isinstance(operand.of, Buffer):
                yield operand.of
            case Struct():
                yield from _buffers(operand.parts)


Choice = tuple[bool | int | str, bool | int | str]  # a template argument, and its default


def instantiated(kernel: str, *arguments: int | str, choices: tuple[Choice, ...] = ()) -> str:
    """The C++ name of an instance of the template `kernel`. Of the last arguments, which have defaults, those
    are left out behind which nothing differs from its default."""
    while choices and choices[-1][0] == choices[-1][1]:
        choices = choices[:-1]
    names = [*arguments, *(given for given, _ in choices)]
    cpp = (str(name).lower() if isinstance(name, bool) else str(name) for name in names)
    return f"{kernel}<{', '.join(cpp)}>"


def row_block(elements: int, most: int = 1024) -> Dim:
    """Whole warps, enough for one 16-byte access a thread of a row in a half type."""
    return (min(most, 32 * -(-elements // (32 * 8))), 1, 1)
