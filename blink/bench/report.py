"""The results as tables for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from blink.bench.metrics import geometric_mean

SHOWN = ("p50", "p99")
LATENCIES = (
    ("TTFT", "ttft_ms", SHOWN),
    ("TPOT", "tpot_ms", SHOWN),
    ("ITL", "itl_ms", (*SHOWN, "p99.9")),
)
BUSY_SHARE = 0.8  # of a core: a load process beyond it is a bottleneck (B5)
ROUNDS = "output_tokens_per_s_of_rounds"  # of closed loops
NOTES = (
    "times in ms, of completed requests. TTFT: until the first token; TPOT: of a request, mean time per\n"
    "token after the first; ITL: between two chunks of one request, all requests together"
)
NOTE_OF_AGENTS = (
    "score: 1 / P90 of (end-to-end latency / output tokens), of n requests; cached: share of their prompts'\n"
    "tokens, as the server says; turns, sessions: that ended in the steady part"
)
NOTE_OF_INTERFERENCE = (
    "TTFT and TPOT: of all requests, where those that were not completed count as longer than any; so a P99\n"
    "is unbounded where about 1 % or more were not completed. ITL: of completed requests"
)
NOTE_OF_ROUNDS = "tok/s, whole requests: from the end of each stream's first request to the end of its last"


def table(result: dict[str, Any]) -> str:
    """Everything a reader needs to judge the result: figures, failures, the client's own health."""
    points = result["points"]
    parts = [f"{result['server']}, model {result['model']}, {result['began']}"]
    if preset := result.get("preset"):  # results of before have none
        parts.append("{name}: as {source}; but {differs}".format(**preset))
    parts += [_latencies(points), NOTES]
    if more := _more(points):
        parts += ["", more]
    if all(ROUNDS in point for point in points):
        parts.append(NOTE_OF_ROUNDS)
    if all("agents" in point for point in points):
        parts.append(NOTE_OF_AGENTS)
    if any(point["antagonists_per_core"] for point in points):
        parts.append("others: antagonists on each of the server's cores")
    parts += _counting(points)
    if any(point["antagonists_per_core"] for point in points):
        parts.append(interference(points))
    if any(point["rate"] is not None for point in points):
        parts.append(result["serviceable_rule"])
        parts += [
            f"  {level} antagonists a core: {'none of the rates' if rate is None else f'{rate:g} req/s'}"
            for level, rate in result["serviceable_per_s"].items()
        ]
    parts += [line for point in points for line in _complaints(point)]
    return "\n".join(parts)


def line(point: dict[str, Any]) -> str:
    """One window in short, for who waits for the rest."""
    latencies = (
        f"{name} p50 {number(point[key], 'p50')} p99 {number(point[key], 'p99')} ms"
        for name, key, _ in LATENCIES[:2]
    )
    rates = f"{point['completed_per_s']:.2f} req/s, {point['output_tokens_per_s']:.0f} tok/s"
    later = (
        f", of later turns p50 {number(point['later_turns']['ttft_ms'], 'p50')} ms"
        if "later_turns" in point
        else ""
    )
    scored = f", score {_score(point)}" if "agents" in point else ""
    return f"{rates}, {', '.join(latencies)}{later}{scored}, {point['requests_failed']} failed"


def _score(point: dict[str, Any]) -> str:
    value = point["agents"]["score_tokens_per_s"]
    return "-" if value is None else f"{value:.3g} tok/s"


def _latencies(points: Sequence[dict[str, Any]]) -> str:
    """The figures that every run has."""
    head = ["load", "req/s", "tok/s"]
    head += [f"{name} {percentile}" for name, _, shown in LATENCIES for percentile in shown]
    rows = [
        [
            label(point),
            f"{point['completed_per_s']:.2f}",
            f"{point['output_tokens_per_s']:.0f}",
            *(number(point[key], percentile) for _, key, shown in LATENCIES for percentile in shown),
            f"{point['requests_failed']} of {point['requests_sent']}",
        ]
        for point in points
    ]
    return render(_with_levels([[*head, "failed"], *rows], points))


def _more(points: Sequence[dict[str, Any]]) -> str:
    """What only some runs have; empty without any of it."""
    columns = _optional_columns(points)
    if not columns:
        return ""
    rows = [[label(point), *(_cell(value(point)) for _, value in columns)] for point in points]
    return render(_with_levels([["load", *(name for name, _ in columns)], *rows], points))


def _with_levels(rows: list[list[str]], points: Sequence[dict[str, Any]]) -> list[list[str]]:
    """With how many antagonists ran on each core, where any did."""
    levels = [str(point["antagonists_per_core"]) for point in points]
    if set(levels) == {"0"}:
        return rows
    return [[row[0], level, *row[1:]] for row, level in zip(rows, ["others", *levels], strict=True)]


def _optional_columns(points: Sequence[dict[str, Any]]) -> list[tuple[str, Any]]:
    columns: list[tuple[str, Any]] = []
    if all(point["itl_ms"] for point in points):
        columns.append(("ITL max", lambda point: number(point["itl_ms"], "max")))
    if all("later_turns" in point for point in points):
        columns += _columns_of_turns()
    if all("agents" in point for point in points):
        columns += _columns_of_agents()
    if all(ROUNDS in point for point in points):
        columns.append(("tok/s, whole requests", lambda point: _or_nan(point[ROUNDS])))
    if all("goodput_per_s" in point for point in points):
        columns.append(("within SLO/s", lambda point: point["goodput_per_s"]))
    if all("levels" in point for point in points):
        columns += [
            (level, lambda point, level=level: "kept" if point["levels"][level] else "broken")
            for level in points[0]["levels"]
        ]
    if all("energy" in point for point in points):
        columns.append(("J/token", lambda point: point["energy"]["joules_per_token"] or float("nan")))
        columns.append(("W", lambda point: point["energy"]["mean_watts"]))
    for name in points[0]["cpu"]:
        columns.append(
            (
                f"{name} CPU s/ktok",
                lambda point, name=name: _or_nan(point["cpu"][name]["seconds_per_thousand_tokens"]),
            )
        )
    return columns


def _columns_of_turns() -> list[tuple[str, Any]]:
    """TTFT of first turns and of later ones, and what share of their prompts was cached."""
    columns: list[tuple[str, Any]] = []
    for name, key in (("1st", "first_turns"), ("later", "later_turns")):
        columns += [
            (f"TTFT {name} {shown}", lambda point, key=key, shown=shown: number(point[key]["ttft_ms"], shown))
            for shown in SHOWN
        ]
        columns.append((f"cached {name}", lambda point, key=key: _percent(point[key]["cached_share"])))
    return columns


def _columns_of_agents() -> list[tuple[str, Any]]:
    """AgentX's score, what share of the prompts was cached, and what was completed."""
    counts = (("turns", "turns_complete"), ("sessions", "sessions_complete"), ("broken", "sessions_broken"))
    return [
        ("score tok/s", lambda point: _or_nan(point["agents"]["score_tokens_per_s"])),
        ("n", lambda point: str(point["requests_complete"])),
        ("cached", lambda point: _percent(point["agents"]["cached_share"])),
        *((name, lambda point, key=key: str(point["agents"][key])) for name, key in counts),
    ]


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _cell(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def label(point: dict[str, Any]) -> str:
    if "conversations" in point:
        return f"{point['concurrency']} users"
    if "agents" in point:
        return f"{point['concurrency']} lanes"
    return f"{point['rate']:g}/s" if point["rate"] is not None else f"c={point['concurrency']}"


def number(values: dict[str, float] | None, key: str) -> str:
    if values is None:
        return "-"
    value = values[key]
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def interference(points: Sequence[dict[str, Any]]) -> str:
    """The Blink paper's table 7, and the tail of the gaps: value [under antagonists / without]. Latencies are
    geometric means over the loads, throughput is at the highest. Those of requests are percentiles of all
    (B6), or what antagonists keep from ending would look like a gain.
    """
    levels = sorted({point["antagonists_per_core"] for point in points})
    figures = {level: _figures([p for p in points if p["antagonists_per_core"] == level]) for level in levels}
    base = figures[levels[0]]
    names = list(base)
    rows = [["threads/core", *names]]
    for level in levels:
        rows.append([str(level), *(_beside(figures[level][name], base[name]) for name in names)])
    return f"{render(rows)}\n{NOTE_OF_INTERFERENCE}"


def _beside(value: float | None, reference: float | None) -> str:
    if value is None:
        return "-"
    if math.isinf(value):
        return "unbounded"
    if not reference or math.isinf(reference):
        return f"{value:.4g}"
    return f"{value:.4g} [{value / reference:.2f}]"


def _figures(points: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    def mean(key: str, percentile: str) -> float | None:
        if any(point[key] is None for point in points):
            return None
        values = [point[key][percentile] for point in points]
        return math.inf if None in values else geometric_mean(values)

    return {
        "P99 TTFT": mean("ttft_of_all_ms", "p99"),
        "P99 TPOT": mean("tpot_of_all_ms", "p99"),
        "req/s at the highest load": points[-1]["completed_per_s"],
        "ITL P99": mean("itl_ms", "p99"),
        "ITL P99.9": mean("itl_ms", "p99.9"),
        "ITL max": max((point["itl_ms"]["max"] for point in points if point["itl_ms"]), default=None),
    }


def _counting(points: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    if any(point["tokens_counted_by"] == "chunks" for point in points):
        lines.append("the server reports no usage: a chunk is counted as a token")
    packed = [point["tokens_per_chunk"] for point in points if (point["tokens_per_chunk"] or 1) > 1.001]
    if packed:
        lines.append(
            f"up to {max(packed):.2f} tokens a chunk on average: gaps are between chunks, not tokens"
        )
    return lines


def _complaints(point: dict[str, Any]) -> list[str]:
    level = point["antagonists_per_core"]
    where = f"{label(point)}, {level} antagonists a core" if level else label(point)
    lines = [f"{where}: {count} failed: {cause}" for cause, count in point["failures"].items()]
    if point["tokens_missing"]:
        lines.append(f"{where}: {point['tokens_missing']} tokens did not come")
    if "conversations" in point:
        lines += _cut_off(where, point["conversations"])
    if ROUNDS in point and point[ROUNDS] is None:
        lines.append(
            f"warning: {where}: a stream completed fewer than two requests in the steady part, so tok/s "
            "depends on where that begins. Use a longer --duration"
        )
    client = point["client"]
    if client["bottleneck"]:
        lines.append(f"warning: {where}: {_lateness(client)}")
    return lines


def _lateness(client: dict[str, Any]) -> str:
    """Whether the client had too much to do, or too little of the machine."""
    late = client["send_late_p99_ms"] or 0.0
    measured = (
        f"at p99 its event loop ran {client['loop_late_p99_ms']:.1f} ms late and requests were sent "
        f"{late:.1f} ms late, while it used {client['busiest_cpu_share']:.0%} of a core"
    )
    if client["busiest_cpu_share"] > BUSY_SHARE:
        return f"the client was the bottleneck: {measured}. Use more --clients"
    return f"this machine was busy, and the client waited for a core: {measured}. Give it cores of its own"


def _cut_off(where: str, conversations: dict[str, int]) -> list[str]:
    broken, left = conversations["broken"], conversations["turns_not_asked"]
    if not left:
        return []
    because = f"{broken} conversations ended by a failure" if broken else "--duration was over"
    return [f"warning: {where}: {left} turns were not asked: {because}"]


def render(rows: Sequence[Sequence[str]]) -> str:
    """Columns, aligned right but for the first."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
