"""blink bench timeline: the results of `blink bench schedulers` as pictures."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from blink.bench.result_file import read_result, whole
from blink.files import CheckedPath, writable_directory

DESCRIPTION = """Draws timeline.png, consecutive decode steps under each scheduler, and makespan.png."""
ENGINE, SCHEDULER = "#2b6cb0", "#dd6b20"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("results", type=Path, metavar="FILE", help="what --json of `schedulers` wrote")
    parser.add_argument(
        "--out", metavar="DIR", action=CheckedPath, check=writable_directory, required=True,
        help="where the pictures go",
    )  # fmt: skip


def main(namespace: argparse.Namespace) -> int:
    path = namespace.results
    record = read_result(path, "blink bench schedulers", lambda found: found.get("what") == "schedulers")
    with whole(path):
        draw(record, namespace.out)
    return 0


def draw(record: dict[str, Any], directory: Path) -> None:
    """Writes the pictures of a result of `blink bench schedulers`."""
    directory.mkdir(parents=True, exist_ok=True)
    draw_timeline(record, directory / "timeline.png")
    draw_makespans(record, directory / "makespan.png")


def draw_timeline(record: dict[str, Any], path: Path) -> None:
    """A strip for each scheduler over the same time: when the engine worked, when the scheduler did."""
    from matplotlib import pyplot

    strips = record["strips"]
    streams = max(row["streams"] for row in record["decode"])
    free = [row for row in record["decode"] if not row.get("constrained")]  # the strips are of these
    busy = {row["scheduler"]: row["busy"] for row in free if row["streams"] == streams}
    end = min(strip["engine"][-1][1] for strip in strips.values())
    figure, axes = pyplot.subplots(
        len(strips), 1, figsize=(11, 0.6 + 1.1 * len(strips)), sharex=True, squeeze=False
    )
    for axis, (name, strip) in zip(axes[:, 0], strips.items(), strict=True):
        for spans, colour, height in ((strip["engine"], ENGINE, 0.55), (strip["scheduler"], SCHEDULER, 0.25)):
            bottom = 0.3 if colour == ENGINE else 0.0
            bars = [(begin / 1e3, (finish - begin) / 1e3) for begin, finish in spans]
            axis.broken_barh(bars, (bottom, height), facecolor=colour, edgecolor="white", linewidth=0.3)
        axis.set(xlim=(0, end / 1e3), ylim=(-0.05, 0.9), yticks=[])
        axis.set_ylabel(f"{name}\n{100 * busy[name]:.1f}% busy", rotation=0, ha="right", va="center")
        axis.spines[["top", "right", "left"]].set_visible(False)
    axes[-1, 0].set_xlabel("ms")
    axes[0, 0].set_title(
        f"{record['model']} on {record['machine']}, decode of {streams} rows: "
        "the engine's steps (blue), the scheduler's turns (orange)",
        fontsize=10,
    )
    save(figure, path)


def draw_makespans(record: dict[str, Any], path: Path) -> None:
    """Bars relative to the first scheduler (the paper's figure 3)."""
    from matplotlib import pyplot

    medians = {(r["workload"], r["scheduler"]): float(np.median(r["seconds"])) for r in record["makespan"]}
    workloads = list(dict.fromkeys(workload for workload, _ in medians))
    kinds = list(dict.fromkeys(kind for _, kind in medians))
    figure, axis = pyplot.subplots(figsize=(9, 3.5))
    width = 0.8 / len(kinds)
    for i, kind in enumerate(kinds):
        heights = [medians[workload, kind] / medians[workload, kinds[0]] for workload in workloads]
        places = np.arange(len(workloads)) + (i - (len(kinds) - 1) / 2) * width
        bars = axis.bar(places, heights, width * 0.92, label=kind)
        axis.bar_label(bars, fmt="%.2f", fontsize=7)
    axis.set_xticks(range(len(workloads)), workloads)
    axis.set(ylabel=f"makespan / {kinds[0]}", title=f"{record['model']} on {record['machine']}")
    axis.legend(ncols=len(kinds), fontsize=8, loc="lower right")
    save(figure, path)


def save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot

    figure.tight_layout()
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
