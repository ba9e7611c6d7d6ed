"""A fleet of simulated nodes under a day of conversations, routed at random or by what nodes have cached.

    .venv/bin/python scripts/scale/simulate.py --nodes 1,16 --policies random,kv --json out.json

Each node is blink's own scheduler in virtual time; steps take what they were measured to take (STEP_TIMES).
docs/scale.md says what comes of it, and what it leaves out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.shape import shape_config  # noqa: E402

from gpu_backend.engines.base import Limits  # noqa: E402
from gpu_backend.options import attention_keys  # noqa: E402
from scale.fleet import POLICIES, StepTimes, simulate  # noqa: E402
from scale.load import Shape, conversations, make  # noqa: E402

# Llama-3-8B in bf16 on an H100: docs/benchmarks/2026-11-25-h100-engine-69767f5.json, decode steps of 1, 64
# rows, mixed ones of 256, 512 tokens, a prefill of 1,024, each less what its keys take. A decoded row reads
# 128 KiB a key at the 3.09 TB/s that were measured; what a prompt's token takes for each key it sees is from
# prefills of 1,024 and 8,192 tokens (docs/benchmarks.md).
STEP_TIMES = StepTimes(
    ((1, 4990), (64, 5520), (256, 7500), (512, 12_700), (1024, 22_200), (2048, 44_400)), 0.0424, 0.00107
)
KV_BYTES = 54 << 30  # of an H100's 80 GB, beside the weights
KEY_BYTES = 128 << 10
SLOTS = 160
PREFILL_WEIGHT = 16.0  # of the router: found by trying 1 to 64
PERCENTILES = (50, 99)
MEASURED_TICK_NS = 200_000  # the next turn begins when the one before has ended, as far as one can tell


def limits(shape: Shape) -> Limits:
    """What a backend chooses on a GPU, but for the context."""
    page_size = 16
    return Limits(
        max_batch=128, max_context=shape.max_context, max_prefill_tokens=2048, max_prefill_slots=16,
        page_size=page_size, total_pages=KV_BYTES // (page_size * KEY_BYTES),
        attention_keys=attention_keys(shape_config("llama-3-8b")),
    )  # fmt: skip


def figures(found: dict[str, Any]) -> dict[str, float]:
    """Of turns that ended."""
    ttft_ms = (found["first"] - found["arrived"]) / 1e6
    tpot_ms = (found["done"] - found["first"]) / 1e6 / np.maximum(found["answer"].astype(int) - 1, 1)
    return {
        "turns": len(ttft_ms),
        "cached": round(float(found["cached"].sum() / found["prompt"].sum()), 4),
        "computed_tokens_per_turn": round(float((found["prompt"] - found["cached"]).mean()), 1),
        **{f"ttft_p{p}_ms": round(float(np.percentile(ttft_ms, p)), 1) for p in PERCENTILES},
        **{f"tpot_p{p}_ms": round(float(np.percentile(tpot_ms, p)), 2) for p in PERCENTILES},
    }


def measured(users: int) -> dict[str, Any]:
    """The conversations that docs/benchmarks.md has measurements of: later turns, on one node."""
    shape = Shape(day_s=60, sessions_per_node_s=0, apps=1, system_tokens=2048, max_context=8192)
    load = conversations(users, turns=6, question=256, answer=128)
    found, _ = simulate(
        shape, load, limits(shape), STEP_TIMES,
        n_nodes=1, policy="random", slots=SLOTS, seed=1, tick_ns=MEASURED_TICK_NS,
    )  # fmt: skip
    took_s = (int(found["done"].max()) - int(load.arrival_ns[0])) / 1e9
    later = {name: values[found["turn"] > 0] for name, values in found.items()}
    return {
        "users": users, "output_tokens_s": round(float(found["answer"].sum()) / took_s), **figures(later)
    }  # fmt: skip


def row(shape: Shape, n_nodes: int, policy: str, seed: int, prefill_weight: float) -> dict[str, Any]:
    load = make(shape, n_nodes, seed)
    began = time.monotonic()
    found, counted = simulate(
        shape, load, limits(shape), STEP_TIMES,
        n_nodes=n_nodes, policy=policy, slots=SLOTS, seed=seed, prefill_weight=prefill_weight,
    )  # fmt: skip
    per_node = np.bincount(found["node"], minlength=n_nodes)
    return {
        "nodes": n_nodes,
        "policy": policy,
        "sessions_per_node_s": shape.sessions_per_node_s,
        "day_s": shape.day_s,
        "prefill_weight": prefill_weight,
        "output_tokens_per_node_s": round(float(found["answer"].sum()) / shape.day_s / n_nodes, 1),
        **figures(found),
        "busiest_node": round(float(per_node.max() / per_node.mean()), 3),
        "steps": counted["steps"],
        "events_per_node_s": round(counted["events"] / shape.day_s / n_nodes, 1),
        "router_us_per_request": round(counted["choose_ns"] / 1e3 / max(counted["requests"], 1), 2),
        "router_us_per_event": round(counted["told_ns"] / 1e3 / max(counted["events"], 1), 3),
        "wall_s": round(time.monotonic() - began, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", default="1,4,16", help="numbers of nodes")
    parser.add_argument("--policies", default=",".join(POLICIES))
    parser.add_argument("--rate", default="4", help="sessions a node and second at the day's peak")
    parser.add_argument("--day", type=float, default=360.0, help="seconds that the curve is pressed into")
    parser.add_argument("--weights", default=str(PREFILL_WEIGHT), help="of a computed block, to the router")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="append the rows to this file's")
    parser.add_argument("--measured", action="store_true", help="instead, what was measured on a GPU")
    options = parser.parse_args()
    if options.measured:
        for users in (1, 16, 64):
            print(json.dumps(measured(users)))
        return
    for n_nodes in map(int, options.nodes.split(",")):
        for rate in map(float, options.rate.split(",")):
            shape = Shape(day_s=options.day, sessions_per_node_s=rate)
            for policy in options.policies.split(","):
                for weight in map(float, options.weights.split(",")):
                    tell(row(shape, n_nodes, policy, options.seed, weight), options.json)


def tell(found: dict[str, Any], path: Path | None) -> None:
    print(json.dumps(found), flush=True)
    if path is not None:
        rows = json.loads(path.read_text()) if path.exists() else []
        path.write_text(json.dumps([*rows, found], indent=1) + "\n")


if __name__ == "__main__":
    main()
