"""What TensorRT for RTX says of a plan while it builds one: its kernels, its borders and its memory. Its
inspector, which says the same, needs a GPU."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

KERNEL = re.compile(
    r"Name: (\S+), LayerType: (\w+), Inputs: \[(.*?)\], Constants: .*?Outputs: \[(.*?)\], Tactic"
)
TENSOR = re.compile(r"Name: (\S+), Dimensions: \[([\d,]+)\]")
BORDER = re.compile(
    r" Name: (\S+), IOMode: (\w+), DataType: (\w+), Dimensions: \[([\d,]+)\], Location: Device"
)
PROFILES = re.compile(r"M(?:in|ax)Shape: \[([\d,]+)\]")

Shape = tuple[int, ...]


class Kernel(NamedTuple):
    kind: str  # "gemm", or "kgen" of one that TensorRT has written itself
    inputs: dict[str, Shape]
    outputs: dict[str, Shape]


class Border(NamedTuple):
    """An input or output."""

    name: str
    mode: str
    dtype: str
    shape: Shape
    profiles: set[Shape]  # the least and the largest shape


def verbose(log: Any) -> Any:
    """A logger like `log` that keeps all `lines`, not errors alone."""

    class Verbose(type(log)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.lines: list[str] = []

        def log(self, severity: Any, line: str) -> None:
            self.lines.append(line)
            super().log(severity, line)

    return Verbose()


class PlanLog:
    def __init__(self, lines: Sequence[str]) -> None:
        whole = "\n".join(lines)
        _, described = whole.split("Layers:\n", 1)
        self.kernels = [
            Kernel(kind, _tensors(inputs), _tensors(outputs))
            for _, kind, inputs, outputs in KERNEL.findall(described)
        ]
        self.borders = []
        for line in described.split("I/O Tensors:\n", 1)[1].split("\n\n", 1)[0].splitlines():
            found = BORDER.match(line)
            assert found, line
            name, mode, dtype, shape = found.groups()
            profiles = {_shape(profile) for profile in PROFILES.findall(line)}
            self.borders.append(Border(name, mode, dtype, _shape(shape), profiles))
        memory = dict(re.findall(r"^Total (\w+(?: \w+)?) Memory: (\d+) bytes$", whole, re.MULTILINE))
        self.n_bytes = {name: int(count) for name, count in memory.items()}


def _shape(text: str) -> Shape:
    return tuple(map(int, text.split(",")))


def _tensors(text: str) -> dict[str, Shape]:
    return {name: _shape(shape) for name, shape in TENSOR.findall(text)}
