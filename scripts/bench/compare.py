#!/usr/bin/env python3
"""Results of several servers side by side, as a Markdown table.

    python scripts/bench/compare.py results/blink-llama-3-8b-closed.json results/vllm-llama-3-8b-closed.json

Refuses results of different loads: the traces' digests have to be the same, and the windows as long.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

OF_TURNS = ["TTFT p50 / p99 of first turns", "of later turns", "cached of those"]  # of conversations
OF_AGENTS = ["score tok/s", "cached", "turns", "sessions"]
HEAD = ["load", "antagonists a core", "server", "req/s", "tok/s", "tok/s of rounds",
        "TTFT p50 / p99", "TPOT p50 / p99", "ITL p50 / p99 / p99.9 / max", "failed", "J/token",
        "CPU s/ktok"]  # fmt: skip


def read(paths: list[Path]) -> list[dict[str, Any]]:
    """The results. Exits where they are not comparable."""
    results = [json.loads(path.read_text()) for path in paths]
    for path, result in zip(paths, results, strict=True):
        if load(result) != load(results[0]):
            raise SystemExit(
                f"{path} is of another load than {paths[0]}:\n{load(result)}\n{load(results[0])}"
            )
    return results


def load(result: dict[str, Any]) -> dict[str, Any]:
    return {
        "digests": {label: trace["digest"] for label, trace in result["traces"].items()},
        "duration_s": result["options"]["duration_s"],
        "seed": result["options"]["seed"],
    }


def several(values: dict[str, float] | None, *keys: str) -> str:
    if values is None:
        return "-"
    return " / ".join(f"{values[key]:.2f}" if values[key] < 100 else f"{values[key]:.0f}" for key in keys)


def row(result: dict[str, Any], point: dict[str, Any]) -> list[str]:
    energy, cpu = point.get("energy"), point["cpu"].get("server")
    cpu_s = cpu["seconds_per_thousand_tokens"] if cpu else None
    of_rounds = point.get("output_tokens_per_s_of_rounds")
    return [
        f"{point['rate']:g}/s" if point["rate"] is not None else str(point["concurrency"]),
        str(point["antagonists_per_core"]),
        result["server"],
        f"{point['completed_per_s']:.2f}",
        f"{point['output_tokens_per_s']:,.0f}",
        f"{of_rounds:,.0f}" if of_rounds else "-",
        several(point["ttft_ms"], "p50", "p99"),
        several(point["tpot_ms"], "p50", "p99"),
        several(point["itl_ms"], "p50", "p99", "p99.9", "max"),
        str(point["requests_failed"]),
        f"{energy['joules_per_token']:.3f}" if energy and energy["joules_per_token"] else "-",
        "-" if cpu_s is None else f"{cpu_s:.3f}",
        *of_turns(point),
        *of_agents(point),
    ]


def of_turns(point: dict[str, Any]) -> list[str]:
    if "later_turns" not in point:
        return []
    later = point["later_turns"]
    share = later["cached_share"]
    return [
        several(point["first_turns"]["ttft_ms"], "p50", "p99"),
        several(later["ttft_ms"], "p50", "p99"),
        "-" if share is None else f"{share:.0%}",
    ]


def of_agents(point: dict[str, Any]) -> list[str]:
    if "agents" not in point:
        return []
    figures = point["agents"]
    score, share = figures["score_tokens_per_s"], figures["cached_share"]
    return [
        "-" if score is None else f"{score:.1f} of {point['requests_complete']}",
        "-" if share is None else f"{share:.0%}",
        str(figures["turns_complete"]),
        str(figures["sessions_complete"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="what --json or peers.py wrote")
    results = read(parser.parse_args().files)
    points = [point for result in results for point in result["points"]]
    are_conversations = all("later_turns" in point for point in points)
    are_agents = all("agents" in point for point in points)
    head = [*HEAD, *(OF_TURNS if are_conversations else []), *(OF_AGENTS if are_agents else [])]
    print(" | ".join(["", *head, ""]).strip())
    print("|" + "---|" * len(head))
    for of_load in zip(*(result["points"] for result in results), strict=True):
        for result, point in zip(results, of_load, strict=True):
            print(" | ".join(["", *row(result, point), ""]).strip())


if __name__ == "__main__":
    main()
