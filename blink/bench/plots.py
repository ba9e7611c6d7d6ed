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
    ("energy, J/token", lambda point: point["energy"]["joules_per_token"], "linear"),
)
LINES = ("-", "--", ":", "-.")


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
    from matplotlib import pyplot

    is_open = results[0]["points"][0]["rate"] is not None
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for axis, (title, value, scale) in zip(axes.flat, PANELS, strict=True):
        for i, result in enumerate(results):
            for j, level in enumerate(dict.fromkeys(p["antagonists_per_core"] for p in result["points"])):
                points = [p for p in result["points"] if p["antagonists_per_core"] == level]
                x, y = _series(points, "rate" if is_open else "concurrency", value)
                name = result["server"] + (f", {level} antagonists a core" if level else "")
                axis.plot(x, y, LINES[j % len(LINES)], color=f"C{i}", marker="o", markersize=3, label=name)
        axis.set(title=title, yscale=scale, xlabel="offered requests/s" if is_open else "open requests")
        axis.grid(alpha=0.3)
    axes.flat[0].legend(fontsize=7)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


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
