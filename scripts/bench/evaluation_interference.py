"""Figure 1 and Table 7 of the paper, with ours: what other tenants of the machine do to a server."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bench.curves import compared, latency, of, pair, rate, unfinished
from bench.evaluation_summary import Points, cell, listed, operating_range
from bench.markdown import NONE, NOT_RUN, exact, number, table, with_ratio
from bench.sweep_plan import INTERFERENCE, ISOLATED, OTHERS, OWN
from bench.sweep_records import Record

VARIANTS = ("blink-apart", "blink", "vllm")
FIGURE_1 = ("qwen3-30b-a3b", 4.0)  # the model, and requests/s
WHERE = {OTHERS: "the other cores", OWN: "the server's own cores"}


def figure_1(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """The paper's figure has only its ratios in the text; those of Table 7 are at the same load."""
    model, load = FIGURE_1
    head = [
        "system",
        "others on",
        "completed/s alone",
        "among others",
        "retained",
        "failed, alone and among others",
    ]
    rows = [
        [f"paper: {system}", "90 other cores", NONE, NONE, f"{theirs['completed_ratio']:.2f}", NONE]
        for system, theirs in paper["Table 7"][model].items()
    ]
    for condition, where in WHERE.items():
        for variant in VARIANTS:
            alone, among = both(records, model, variant, condition)
            found = compared(among, alone, rate("completed_per_s"), [load])
            if found is None:
                rows.append([variant, where, NOT_RUN, *[NONE] * 3])
            else:
                cells = [number(found.second), number(found.first), f"{found.ratio:.2f}"]
                rows.append([variant, where, *cells, failed(alone, among, [load])])
    return table(head, rows)


def table_7(records: Sequence[Record], paper: dict[str, Any]) -> str:
    head = ["model", "system", "others on", "requests/s", "geometric mean of TTFT p99, ms", "of TPOT p99, ms",
            "completed/s at the highest of these loads", "failed, alone and among others"]  # fmt: skip
    rows = []
    for model, title in paper["models"].items():
        most = f"up to {paper['operating_range'][model]:g}"
        for system, theirs in paper["Table 7"][model].items():
            keys = (("ttft_p99", "ttft_ratio"), ("tpot_p99", "tpot_ratio"), ("completed", "completed_ratio"))
            cells = [with_ratio(exact(theirs[value]), theirs[ratio]) for value, ratio in keys]
            rows.append([title, f"paper: {system}", "90 other cores", most, *cells, NONE])
        for condition, where in WHERE.items():
            for variant in VARIANTS:
                rows.append([title, variant, where, *_ours(records, model, variant, condition)])
    return table(head, rows)


def both(records: Sequence[Record], model: str, variant: str, condition: str) -> tuple[Points, Points]:
    """A server's points alone and in the condition, on the same cores."""
    alone = of(records, model, variant, INTERFERENCE, ISOLATED)
    return alone, of(records, model, variant, INTERFERENCE, condition)


def _ours(records: Sequence[Record], model: str, variant: str, condition: str) -> list[str]:
    """Over the loads within Blink's operating range; over all, where no sweep says what it is."""
    alone, among = both(records, model, variant, condition)
    within = operating_range(records, model)
    loads = [load for load in among if not within or load <= within[-1]]
    if not loads:
        return [NOT_RUN, *[NONE] * 4]
    last = loads[-1:]
    cells = [
        cell(compared(among, alone, latency("ttft", "p99"), loads), loads),
        cell(compared(among, alone, latency("tpot", "p99"), loads), loads),
        cell(compared(among, alone, rate("completed_per_s"), last), last),
    ]
    return [listed(loads), *cells, failed(alone, among, loads)]


def failed(alone: Points, among: Points, loads: Iterable[float]) -> str:
    """Requests of whole windows that were not completed, of all; and those of them that ran out of time."""
    pairs = [pair(alone.get(load, []), among.get(load, [])) for load in loads]
    sides = ([one.first for one in pairs], [one.second for one in pairs])
    return "; ".join(_lost([record for records in side for record in records]) for side in sides)


def _lost(records: Sequence[Record]) -> str:
    failures = sum(record["point"]["requests_failed"] for record in records)
    requests = sum(record["trace"]["requests"] for record in records)
    return f"{failures} of {requests}, {sum(map(unfinished, records))} unfinished"
