"""How long servers take to start: as the plan guesses, or longer, if they took longer the last time."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bench.sweep_plan import STOP_S, VARIANTS, Block
from bench.sweep_records import Record

SPARE_S = 10.0  # a model's directory is made, and the draw of the server that waits is measured


class Starts:
    """By the last start of each server and model among these records."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._last: dict[tuple[str, str], float] = {}
        for record in records:
            start_s = (record.get("server") or {}).get("start_s")
            if start_s is not None:
                self._last[record["variant"], record["model"]] = float(start_s)

    def of(self, variant: str, model: str) -> float:
        """`model`: of a block."""
        last = self._last.get((variant, Path(model).name), 0.0)
        return max(VARIANTS[variant].start_s, last + SPARE_S)

    def of_block(self, block: Block) -> float:
        """The starts and ends of its servers."""
        return sum(self.of(name, block.model) + STOP_S for name in block.variants)
