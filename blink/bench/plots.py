"""Draws results: latency and throughput over the load, a line a server, and the lengths of a trace."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PANELS = (
    ("TTFT p99, ms", lambda point: point["ttft_ms"]["p99"], "log"),
    ("TPOT p99, ms", lambda point: point["tpot_ms"]["p99"], "log"),
    ("ITL p99, ms", lambda point: point["itl_ms"]["p99"], "log"),
    ("completed, requests/s", lambda point: point["completed_per_s"], "linear"),
    ("output tokens/s", lambda point: point["output_tokens_per_s"], "linear"),
    ("energy, J/token", lambda point: point["energy"]["joules_per_token"], "log"),
)
TAIL = (
    "ITL p99.9, ms",
    lambda point: point["itl_ms"]["p99.9"],
    "log",
)  # instead of tokens/s, among antagonists
ACROSS = {
    "rate": "offered requests/s",
    "concurrency": "open requests",
    "antagonists_per_core": "antagonist threads on each of the server's cores",
}
LINES = ("-", "--", ":", "-.")
LEGEND_COLUMNS = 6


def require() -> None:
    """Raises ModuleNotFoundError, which names the extra to install, before anything is measured."""
    importlib.import_module("matplotlib")


def draw(results: Sequence[dict[str, Any]], directory: Path) -> list[Path]:
    """Writes load.png and lengths.png; returns their paths. Panels without values stay out."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / "load.png", directory / "lengths.png"]
    _load(results, paths[0])
    _lengths(results[0], paths[1])
    return paths


def _load(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Over the load, or where it is one and its antagonists are several, over them."""
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: f"{value:g}")  # a logarithmic axis would write powers of ten
    load = "rate" if results[0]["points"][0]["rate"] is not None else "concurrency"
    is_disturbed = len({point[load] for point in results[0]["points"]}) == 1 and len(results[0]["points"]) > 1
    across = "antagonists_per_core" if is_disturbed else load
    panels = [TAIL if is_disturbed and panel[0] == "output tokens/s" else panel for panel in PANELS]
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    styles: dict[int, Any] = {}  # of lines, by antagonists a core
    for axis, (title, value, scale) in zip(axes.flat, panels, strict=True):
        for i, result in enumerate(results):
            for level, points in _lines(result, is_disturbed):
                style = styles.setdefault(level, LINES[len(styles) % len(LINES)])
                x, y = _series(points, across, value)
                if x:
                    axis.plot(x, y, style, color=f"C{i}", marker="o", markersize=3)
        axis.set_visible(axis.has_data())
        axis.set(title=title, yscale=scale, xlabel=ACROSS[across])
        if scale == "log":
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_major_formatter(plain)
        axis.grid(alpha=0.3)
    _legend(figure, [result["server"] for result in results], styles)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _lines(result: dict[str, Any], is_disturbed: bool) -> list[tuple[int, list[dict[str, Any]]]]:
    """A line a server, or a line a server and level of antagonists."""
    points = result["points"]
    if is_disturbed:
        return [(0, points)]  # all levels, in the style of none
    levels = dict.fromkeys(point["antagonists_per_core"] for point in points)
    return [(n, [point for point in points if point["antagonists_per_core"] == n]) for n in levels]


def _legend(figure: Any, servers: Sequence[str], styles: dict[int, Any]) -> None:
    """Below the panels: a colour a server and, if there were antagonists, a style for each level of them."""
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=f"C{i}", label=server) for i, server in enumerate(servers)]
    if set(styles) - {0}:
        handles += [
            Line2D([], [], color="black", linestyle=style, label=f"{level} antagonists a core")
            for level, style in styles.items()
        ]
    figure.legend(handles=handles, loc="outside lower center", ncols=LEGEND_COLUMNS, fontsize=9)


def _series(points: Sequence[dict[str, Any]], load: str, value: Any) -> tuple[list[float], list[float]]:
    pairs = []
    for point in points:
        try:
            pairs.append((float(point[load]), float(value(point))))
        except (KeyError, TypeError):  # not measured at this point
            continue
    return [x for x, _ in pairs], [y for _, y in pairs]


def _lengths(result: dict[str, Any], path: Path) -> None:
    from matplotlib import pyplot

    label, trace = max(result["traces"].items(), key=lambda pair: int(pair[1]["requests"]))
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    for axis, key in zip(axes, ("input_tokens", "output_tokens"), strict=True):
        lengths = trace[key]
        axis.stairs(lengths["counts"], lengths["edges"], fill=True)
        axis.set(
            title=f"{key.replace('_', ' ')}, mean {lengths['mean']:.0f}", xlabel="tokens", ylabel="requests"
        )
    figure.suptitle(f"{trace['requests']} requests, {label}, trace {trace['digest']}", fontsize=9)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
