"""blink bench plot: results of several servers in one picture, on a machine that has matplotlib."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from blink.bench import plots
from blink.bench.trace import load_label
from blink.errors import CommandError

DESCRIPTION = "Draws results of `blink bench serve --json`, one line a server and level of antagonists."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="what --json wrote")
    parser.add_argument("--rate", type=float, metavar="R", help="draw what was measured at this rate alone")
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the pictures go")


def main(namespace: argparse.Namespace) -> int:
    plots.require()
    results = []
    for path in namespace.files:
        result = json.loads(path.read_text())
        if not isinstance(result, dict) or "points" not in result:
            raise CommandError(f"{path} is no result of `blink bench serve --json`")
        if namespace.rate is not None:
            result["points"] = [point for point in result["points"] if point["rate"] == namespace.rate]
            label = load_label(namespace.rate, None)
            result["traces"] = {name: trace for name, trace in result["traces"].items() if name == label}
            if not result["points"]:
                raise CommandError(f"{path} has no window of {namespace.rate:g} requests/s")
        results.append(result)
    for path in plots.draw(results, namespace.out):
        print(path)
    return 0
