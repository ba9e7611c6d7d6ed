"""Every point of a sweep: percentiles with the number of their values, throughput, energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bench.curves import OF_REQUESTS, cpu_seconds, joules, joules_without_idle, latency, unfinished
from bench.markdown import NONE, NOT_RUN, number, table
from bench.sweep_records import MEASURED, Record

STATISTICS = ("p50", "mean", "p95", "p99", "p99.9")
LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL"}
KEY = ("requests/s", "others", "server", "run")


def percentiles(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """In ms."""
    head = [*KEY, *(f"{name} {what}" for name in LATENCIES.values() for what in ("n", *STATISTICS))]
    return of_models(records, paper, head, _percentiles)


def _percentiles(record: Record) -> list[str]:
    cells = []
    for name in LATENCIES:
        cells.append(_values(record["point"], name))
        cells += [number(latency(name, statistic)(record)) for statistic in STATISTICS]
    return cells


def _values(point: dict[str, Any], name: str) -> str:
    """How many values were measured, and of how many percentiles are where some were not."""
    of_complete = point[f"{name}_ms"]
    of_all = point[f"{name}_of_all_ms"] if name in OF_REQUESTS else of_complete
    measured, together = (summary["n"] if summary else 0 for summary in (of_complete, of_all))
    return f"{measured:,}" if measured == together else f"{measured:,} of {together:,}"


def throughputs(records: Sequence[Record], paper: dict[str, Any]) -> str:
    head = [*KEY, "sent", "complete", "failed in the window", "of them unfinished", "offered/s",
            "completed/s", "prefill tok/s", "decode tok/s", "J a token", "J a token without idle",
            "CPU s per 1,000 tokens", "client"]  # fmt: skip
    return of_models(records, paper, head, _throughputs)


def _throughputs(record: Record) -> list[str]:
    point = record["point"]
    return [
        f"{point['requests_sent']:,}",
        f"{point['requests_complete']:,}",
        f"{point['requests_failed']:,}",
        f"{unfinished(record):,}",
        number(point["offered_per_s"]),
        number(point["completed_per_s"]),
        number(point["prompt_tokens_per_s"]),
        number(point["output_tokens_per_s"]),
        number(joules(record)),
        number(joules_without_idle(record)),
        number(cpu_seconds(record)),
        "late" if point["client"]["bottleneck"] else "in time",
    ]


def of_models(
    records: Sequence[Record],
    paper: dict[str, Any],
    head: Sequence[str],
    cells: Callable[[Record], list[str]],
) -> str:
    """A table for each of the paper's models, with a row a point; a point that failed has its reason."""
    parts = []
    for model, title in paper["models"].items():
        mine = [record for record in records if record["model"] == model]
        mine.sort(key=lambda record: (record["part"], record["rate"], record["call"], record["variant"]))
        rows = []
        for record in mine:
            key = [f"{record['rate']:g}", record["condition"], record["variant"], record["call"]]
            if record["status"] == MEASURED:
                rows.append([*key, *cells(record)])
            else:
                told = f"failed: {' '.join(str(record['reason']).split())[:200]}"
                rows.append([*key, told, *[NONE] * (len(head) - len(key) - 1)])
        parts.append(f"**{title}**\n\n{table(head, rows) if rows else NOT_RUN}")
    return "\n\n".join(parts)


def runs(records: Sequence[Record], paper: dict[str, Any]) -> str:
    """Where each run measured: points of one run are of one card."""
    head = ["run", "date", "commit", "machine", "driver", "card", "reads, TB/s", "idle, W"]
    found = {record["call"]: record for record in records}
    rows = [
        [
            call,
            record["date"],
            record["commit"],
            record["machine"],
            record["driver"] or NONE,
            record["card"] or NONE,
            number(record["read_tb_per_s"]),
            number(record["idle_watts"]),
        ]
        for call, record in sorted(found.items())
    ]
    return table(head, rows) if rows else NOT_RUN
