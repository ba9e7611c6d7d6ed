"""A step's launches, kept by operation instead of made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Recorder:
    """Stands for a step's kernels and for cuBLAS. Keeps their calls by operation instead of making them."""

    def __init__(self, kernels: Any, cublas: Any, matrices: dict[int, str]) -> None:
        self._kernels = kernels
        self._cublas = cublas
        self._matrices = matrices
        self.matrix: int | None = None  # what a product multiplies with: its launch has it in a tensor map
        self.prefix = ""  # of the products' names
        self.calls: dict[str, list[Callable[[], None]]] = {}

    def __getitem__(self, op: str) -> Any:
        recorder, kernel = self, self._kernels[op]

        class Launch:
            def launch(self, grid: Any, block: Any, stream: Any, *arguments: Any, **flags: Any) -> None:
                call = lambda: kernel.launch(grid, block, stream, *arguments, **flags)  # noqa: E731
                recorder._keep(op, arguments, call)

        return Launch()

    def linear(self, *arguments: Any) -> None:
        self._keep("cublas", arguments, lambda: self._cublas.linear(*arguments))

    def _keep(self, op: str, arguments: tuple[Any, ...], call: Callable[[], None]) -> None:
        known = self._matrices if op != "embed" else {}  # whose table may be the head
        named = [known[a] for a in (*arguments, self.matrix) if isinstance(a, int) and a in known]
        name = f"{self.prefix}{named[0]} ({op})" if named else op
        self.calls.setdefault(name, []).append(call)
