"""The paper's summaries of its load sweeps, with ours: saturation, Tables 6, B.1 and B.2, Figure C.1."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from bench.curves import Compared, Figure, compared, latency, of, rate, serviceable_load, throughput
from bench.markdown import NONE, NOT_RUN, exact, number, table, with_ratio
from bench.saturation import Saturation, fitted
from bench.sweep_records import Record

from blink.bench.metrics import SERVICEABLE_RULE

BLINK = "blink"
OURS = (BLINK, "vllm", "vllm-1024")
SECOND = ("blink-cache", "vllm-cache")  # of the second table, with prefix caches
LEAST_LOADS = 2  # of a fit

Points = dict[float, list[Record]]


def saturation(points: Points) -> Saturation | None:
    """None where too few loads were measured."""
    return fitted(throughput(points)) if len(points) >= LEAST_LOADS else None


def fit(records: Sequence[Record], paper: dict[str, Any]) -> str:
    head = ["model", "system", "saturation point, requests/s", "plateau, requests/s", "slope",
            "operating range, requests/s", "loads measured"]  # fmt: skip
    rows = []
    for model, title in paper["models"].items():
        most = paper["operating_range"][model]
        rows.append(
            [title, "paper: Blink", NONE, exact(paper["plateau"][model]), NONE, f"up to {most:g}", "13"]
        )
        for variant in (*OURS, *SECOND):
            points = of(records, model, variant)
            found = saturation(points)
            if found is None:
                if variant in OURS:
                    rows.append([title, variant, NOT_RUN, NONE, NONE, NONE, str(len(points))])
                continue
            point = "beyond the last load" if found.point is None else number(found.point)
            loads = listed(found.operating_range)
            plateau = number(found.plateau)
            rows.append([title, variant, point, plateau, f"{found.slope:.3f}", loads, str(len(points))])
    return table(head, rows)


def operating_range(records: Sequence[Record], model: str) -> tuple[float, ...]:
    """Blink's, of the model; empty without a fit."""
    found = saturation(of(records, model, BLINK))
    return () if found is None else found.operating_range


def table_6(records: Sequence[Record], paper: dict[str, Any]) -> str:
    columns = {
        "ttft_p99": ("geometric mean of TTFT p99, ms", latency("ttft", "p99")),
        "tpot_p99": ("of TPOT p99, ms", latency("tpot", "p99")),
    }
    at_saturation = {"completed": ("completed/s at saturation", rate("completed_per_s"))}
    return _beside_the_paper(records, paper, "Table 6", columns, at_saturation)


def table_b1(records: Sequence[Record], paper: dict[str, Any]) -> str:
    columns = {
        f"{name}_{statistic}": (f"{name.upper()} {statistic}, ms", latency(name, statistic))
        for name in ("ttft", "tpot")
        for statistic in ("p50", "mean")
    }
    return _beside_the_paper(records, paper, "Table B.1", columns, {})


def table_b2(records: Sequence[Record], paper: dict[str, Any]) -> str:
    at_saturation = {
        "decode": ("decode tok/s", rate("output_tokens_per_s")),
        "prefill": ("prefill tok/s", rate("prompt_tokens_per_s")),
    }
    return _beside_the_paper(records, paper, "Table B.2", {}, at_saturation)


def figure_c1(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """The paper has a bar chart without numbers."""
    rows = [
        [title, *(_serviceable(of(records, model, variant)) for variant in OURS)]
        for model, title in paper["models"].items()
    ]
    heads = [f"{variant}, requests/s" for variant in OURS]
    return f"{SERVICEABLE_RULE[0].upper()}{SERVICEABLE_RULE[1:]}.\n\n{table(['model', *heads], rows)}"


def _serviceable(points: Points) -> str:
    if not points:
        return NOT_RUN
    found = serviceable_load(points)
    return "none of the loads" if found is None else f"{found:g} of up to {max(points):g}"


Columns = dict[str, tuple[str, Figure]]  # by the paper's name: a heading, and what it is of


def _beside_the_paper(
    records: Sequence[Record], paper: dict[str, Any], name: str, over_range: Columns, at_saturation: Columns
) -> str:
    """Each system of the paper with its ratio to the paper's Blink, and each of ours with that to ours."""
    columns = over_range | at_saturation
    rows = []
    for model, title in paper["models"].items():
        theirs = paper[name][model]
        most = paper["operating_range"][model]
        for system in paper["systems"]:
            blink = theirs["Blink"]
            mine = theirs[system]
            cells = [with_ratio(exact(mine[key]), mine[key] / blink[key]) for key in columns]
            rows.append([title, f"paper: {system}", f"up to {most:g}", *cells])
        loads = operating_range(records, model)
        for variant in OURS:
            points, blink = of(records, model, variant), of(records, model, BLINK)
            rows.append([title, variant, *_ours(points, blink, loads, over_range, at_saturation)])
    return table(["model", "system", "requests/s", *(head for head, _ in columns.values())], rows)


def caches(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """With prefix caches on, which the paper turned off: over all loads that both were measured at."""
    columns = {
        f"{name}_{statistic}": (f"{name.upper()} {statistic}, ms", latency(name, statistic))
        for name in ("ttft", "tpot", "itl")
        for statistic in ("p50", "p99")
    }
    rows = []
    for model, title in paper["models"].items():
        reference = of(records, model, SECOND[0])
        for variant in SECOND if reference else ():
            points = of(records, model, variant)
            rows.append([title, variant, *_ours(points, reference, tuple(reference), columns, {})])
    return (
        table(["model", "system", "requests/s", *(head for head, _ in columns.values())], rows)
        if rows
        else NOT_RUN
    )


def _ours(
    points: Points, reference: Points, loads: tuple[float, ...], over_range: Columns, at_saturation: Columns
) -> list[str]:
    """The loads, then geometric means over them and figures at the highest, each beside the reference's."""
    measured = [load for load in loads if load in points]
    if not measured:
        return [NOT_RUN, *[NONE] * (len(over_range) + len(at_saturation))]
    cells = [
        cell(compared(points, reference, figure, measured), measured) for _, figure in over_range.values()
    ]
    last = loads[-1:]
    cells += [cell(compared(points, reference, figure, last), last) for _, figure in at_saturation.values()]
    return [listed(measured), *cells]


def listed(loads: Iterable[float]) -> str:
    return ", ".join(f"{load:g}" for load in loads)


def cell(found: Compared | None, loads: Sequence[float]) -> str:
    """With its ratio to what it is compared with, a star where runs differ, and the loads that it is of where
    they are not all `loads`.
    """
    if found is None:
        return NONE
    text = number(found.first)
    if found.ratio is not None:
        text = with_ratio(text, found.ratio)
    elif not math.isinf(found.first):
        text += " [to unbounded]"  # or it would look as if there were nothing to compare with
    text += "" if found.is_of_one_run else "*"
    return text if found.rates == tuple(loads) else f"{text} at {listed(found.rates)}"
