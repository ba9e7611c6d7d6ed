#!/usr/bin/env python3
"""The paper's tables beside ours, in Markdown, from what sweep.py has measured so far.

    python scripts/bench/evaluation.py build/bench/sweep.jsonl > build/bench/evaluation.md
    python scripts/bench/evaluation.py --table table-6 --table fit build/bench/sweep.jsonl

What has not been measured is "not run". p99.9 is told of 1,000 values or more. A percentile of TTFT or TPOT
counts requests that were not completed as longer than any; where it would be of one of them, it is
"unbounded". Means, and all of ITL, are of completed requests only. In brackets are ratios: to blink, or under
interference to the same server alone; none where the figure is unbounded, and "to unbounded" where only what
it is compared with is. They are of points that one run measured on one card; a star says that they are of
several runs. A mean of fewer loads than its row names says of which ("at 3, 6").
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.curves import OF_REQUESTS  # noqa: E402
from bench.evaluation_energy import figure_8  # noqa: E402
from bench.evaluation_interference import figure_1, table_7  # noqa: E402
from bench.evaluation_points import percentiles, runs, throughputs  # noqa: E402
from bench.evaluation_summary import caches, figure_c1, fit, table_6, table_b1, table_b2  # noqa: E402
from bench.sweep_records import MEASURED, Record, read_files  # noqa: E402

PAPER = Path(__file__).with_name("paper_tables.json")
OF_ALL = tuple(f"{name}_of_all_ms" for name in OF_REQUESTS)
Table = Callable[[Sequence[Record], dict[str, Any]], str]
TABLES: dict[str, tuple[str, Table]] = {
    "runs": ("Runs", runs),
    "percentiles": ("Latency by load, ms (Figures 5, 6 and D.1 to D.4)", percentiles),
    "throughput": ("Throughput, failures and energy by load (Figures 7 and E.1)", throughputs),
    "fit": ("Saturation (section 6.2)", fit),
    "table-6": ("Table 6", table_6),
    "table-b1": ("Table B.1", table_b1),
    "table-b2": ("Table B.2", table_b2),
    "figure-c1": ("Serviceable load (Figure C.1)", figure_c1),
    "figure-8": ("Energy a token (Figure 8)", figure_8),
    "figure-1": ("Figure 1", figure_1),
    "table-7": ("Table 7", table_7),
    "caches": ("With prefix caches", caches),
}


def markdown(records: Sequence[Record], names: Sequence[str]) -> str:
    paper = json.loads(PAPER.read_text())
    parts = (f"## {title}\n\n{made(records, paper)}" for title, made in (TABLES[name] for name in names))
    return "\n\n".join(parts)


def check(records: Sequence[Record]) -> None:
    """Raises SystemExit for points that were measured before points had percentiles of all requests."""
    for record in records:
        if record["status"] == MEASURED and not record["point"].keys() >= {*OF_ALL}:
            where = ", ".join(record[name] for name in ("call", "variant", "model"))
            raise SystemExit(
                f"run {where}, {record['rate']:g} requests/s: this point has no {' or '.join(OF_ALL)}, so "
                "unfinished requests would not count. Leave its file out, and measure it again"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="*", type=Path, help="what sweep.py wrote")
    parser.add_argument("--table", action="append", choices=tuple(TABLES), help="only this; may be repeated")
    arguments = parser.parse_args()
    records = read_files(arguments.files)
    check(records)
    print(markdown(records, arguments.table or tuple(TABLES)))


if __name__ == "__main__":
    main()
