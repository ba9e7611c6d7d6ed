"""Figure 8 of the paper, energy a token, with ours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.curves import joules, joules_without_idle, of
from bench.evaluation_summary import BLINK, OURS
from bench.markdown import NONE, NOT_RUN, exact, number, table
from bench.sweep_records import Record

Joules = Callable[[Record], float | None]  # a token


def figure_8(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """In mJ: the paper's of a whole server at its wall plug, of the systems that its text has; ours of the
    GPU, over all loads of the sweep that blink was measured at, too.
    """
    rows = []
    for model, title in paper["models"].items():
        for system, value in paper["Figure 8"]["isolated"][model].items():
            rows.append([title, f"paper: {system}", "whole server", exact(value), NONE])
        blink = of(records, model, BLINK)
        for variant in OURS:
            points = of(records, model, variant)
            mine = [record for load in points if load in blink for record in points[load]]
            cells = [NOT_RUN, NONE]
            if mine:
                cells = [_millijoules(mine, figure) for figure in (joules, joules_without_idle)]
            rows.append([title, variant, "GPU", *cells])
    return table(["model", "system", "of", "mJ a token", "without the idle GPU's"], rows)


def _millijoules(records: Sequence[Record], figure: Joules) -> str:
    """All energy by all tokens; NONE where a point has none."""
    spent = tokens = 0.0
    for record in records:
        each, total = figure(record), joules(record)
        if each is None or not total:
            return NONE
        of_point = record["point"]["energy"]["joules"] / total
        spent, tokens = spent + each * of_point, tokens + of_point
    return number(1e3 * spent / tokens)
