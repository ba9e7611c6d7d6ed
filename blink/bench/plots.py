"""Draws results: latency and throughput over the load, a line a server, and the lengths of a trace."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Value = Callable[[dict[str, Any]], Any]  # of a window


def latency(key: str) -> tuple[Value, Value]:
    """The p99 and the p50 of a latency."""
    return lambda point: point[key]["p99"], lambda point: point[key]["p50"]


# title, label of the axis, what its lines show (a second one is thin), scale
PANELS: tuple[tuple[str, str, tuple[Value, ...], str], ...] = (
    ("TTFT of completed requests: p99, and p50 (thin)", "ms", latency("ttft_ms"), "log"),
    ("TPOT of completed requests: p99, and p50 (thin)", "ms", latency("tpot_ms"), "log"),
    ("ITL of completed requests: p99, and p50 (thin)", "ms", latency("itl_ms"), "log"),
    ("completed", "requests/s", (lambda point: point["completed_per_s"],), "linear"),
    ("output", "tokens/s", (lambda point: point["output_tokens_per_s"],), "linear"),
    ("energy", "J/token", (lambda point: point["energy"]["joules_per_token"],), "log"),
)
# instead of tokens/s, among antagonists
TAIL = ("ITL of completed requests: p99.9", "ms", (lambda point: point["itl_ms"]["p99.9"],), "log")
ACROSS = {
    "rate": "offered requests/s",
    "concurrency": "open requests",
    "antagonists_per_core": "antagonist threads on each of the server's cores",
}
WIDTHS = (1.5, 0.7)
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
    wanted = [TAIL if is_disturbed and panel[1] == "tokens/s" else panel for panel in PANELS]
    panels = [panel for panel in wanted if any(_has(results, panel[2][0], across))]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(4.4 * columns, 3.5 * rows), layout="constrained", squeeze=False
    )
    styles: dict[int, Any] = {}  # of lines, by antagonists a core
    for axis, (title, unit, values, scale) in zip(axes.flat, panels, strict=False):
        for i, result in enumerate(results):
            for level, points in _lines(result, is_disturbed):
                style = styles.setdefault(level, LINES[len(styles) % len(LINES)])
                for value, width in zip(values, WIDTHS, strict=False):
                    x, y = _series(points, across, value)
                    if x:
                        axis.plot(
                            x, y, style, color=f"C{i}", marker="o", markersize=2 * width, linewidth=width
                        )
        axis.set(title=title, yscale=scale, xlabel=ACROSS[across])
        axis.set_ylabel(f"{unit}, logarithmic" if scale == "log" else unit)
        if scale == "log":
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_minor_formatter(NullFormatter())
        else:
            axis.set_ylim(bottom=0)
        axis.yaxis.set_major_formatter(plain)
        axis.grid(alpha=0.3)
    for axis in axes.flat[len(panels) :]:
        axis.remove()  # the cells of an incomplete row
    _legend(figure, [result["server"] for result in results], styles)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def _has(results: Sequence[dict[str, Any]], value: Value, across: str) -> Iterator[bool]:
    """Of each result, whether it has such values."""
    return (bool(_series(result["points"], across, value)[0]) for result in results)


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
