"""blink bench plot: results of several servers in one picture, on a machine that has matplotlib."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from blink.bench import plots
from blink.bench.result_file import read_result, whole
from blink.bench.trace import load_label
from blink.errors import CommandError
from blink.files import CheckedPath, writable_directory

DESCRIPTION = "Draws results of `blink bench serve --json`, one line a server and level of antagonists."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="what --json wrote")
    parser.add_argument("--rate", type=float, metavar="R", help="draw what was measured at this rate alone")
    parser.add_argument(
        "--out", metavar="DIR", action=CheckedPath, check=writable_directory, required=True,
        help="where the pictures go",
    )  # fmt: skip


def main(namespace: argparse.Namespace) -> int:
    plots.require()
    results = []
    for path in namespace.files:
        result = read_result(path, "blink bench serve", lambda found: "points" in found)
        with whole(path):
            results.append(result if namespace.rate is None else at_rate(result, namespace.rate))
        if not results[-1]["points"]:
            raise CommandError(f"{path} has no window of {namespace.rate:g} requests/s")
    with whole(*namespace.files):
        pictures = plots.draw(results, namespace.out)
    for picture in pictures:
        print(picture)
    return 0


def at_rate(result: dict[str, Any], rate: float) -> dict[str, Any]:
    """What was measured at this rate alone."""
    label = load_label(rate, None)
    points = [point for point in result["points"] if point["rate"] == rate]
    traces = {name: trace for name, trace in result["traces"].items() if name == label}
    return {**result, "points": points, "traces": traces}
