"""Figure 8 of the paper, energy a token, with ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.curves import Compared, Figure, Pair, common, joules, joules_without_idle, of
from bench.evaluation_summary import BLINK, OURS, cell, listed
from bench.markdown import NONE, NOT_RUN, exact, table
from bench.sweep_records import Record


def figure_8(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """In mJ: the paper's of a whole server at its wall plug, of the systems that its text has; ours of the
    GPU, at the loads of the sweep that blink was measured at, too, each with its ratio to blink at these.
    """
    rows = []
    for model, title in paper["models"].items():
        for system, value in paper["Figure 8"]["isolated"][model].items():
            rows.append([title, f"paper: {system}", "whole server", NONE, exact(value), NONE])
        blink = of(records, model, BLINK)
        for variant in OURS:
            rows.append([title, variant, "GPU", *_ours(common(of(records, model, variant), blink))])
    return table(["model", "system", "of", "requests/s", "mJ a token", "without the idle GPU's"], rows)


def _ours(pairs: dict[float, Pair]) -> list[str]:
    if not pairs:
        return [NOT_RUN, NONE, NONE]
    cells = [cell(_compared(pairs, figure), tuple(pairs)) for figure in (joules, joules_without_idle)]
    return [listed(pairs), *cells]


def _compared(pairs: dict[float, Pair], figure: Figure) -> Compared | None:
    first = _millijoules((both.first for both in pairs.values()), figure)
    second = _millijoules((both.second for both in pairs.values()), figure)
    if first is None or not second:
        return None
    return Compared(first, second, tuple(pairs), all(both.is_of_one_run for both in pairs.values()))


def _millijoules(loads: Iterable[Sequence[Record]], figure: Figure) -> float | None:
    """A token: all energy by all tokens of the loads, after repeats of a load were averaged. None where a
    point has none.
    """
    spent = tokens = 0.0
    for repeats in loads:
        for record in repeats:
            each, total = figure(record), joules(record)
            if each is None or not total:
                return None
            of_point = record["point"]["energy"]["joules"] / total / len(repeats)
            spent, tokens = spent + each * of_point, tokens + of_point
    return 1e3 * spent / tokens
