#!/usr/bin/env python3
"""Does `blink bench serve` agree with a public tool? Both measure the same server of known latencies.

    python -m venv /tmp/guidellm && /tmp/guidellm/bin/pip install guidellm==0.8.1
    python scripts/bench/agreement.py --guidellm /tmp/guidellm/bin/guidellm --out agreement.json

The server is step_server.py: what it was asked for is the truth that both are held against. The tools take
turns, --rounds times each, so that what else the machine does falls on both. guidellm's inter-token latency
is one mean a request, (last - first) / (tokens - 1): what `blink bench serve` calls TPOT; its time per output
token includes the first token.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT_S = 120.0  # beyond the duration
RECORDED_APART = ("guidellm", "commit", "out")
Figures = dict[str, float]


@contextmanager
def step_server(arguments: argparse.Namespace, reports: list[dict[str, float]]) -> Iterator[str]:
    """Its URL. Its own report is appended at the end."""
    command = [
        sys.executable, str(ROOT / "scripts" / "bench" / "step_server.py"),
        f"--step-ms={arguments.step_ms}", f"--first-ms={arguments.first_ms}",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=20)
        reports.append(json.loads(output))


def with_blink(url: str, arguments: argparse.Namespace, scratch: Path) -> Figures:
    out = scratch / "blink.json"
    command = [
        sys.executable, "-m", "blink", "bench", "serve", url, f"--concurrency={arguments.streams}",
        f"--input={arguments.input}", f"--output={arguments.output}", f"--duration={arguments.seconds}",
        f"--json={out}",
    ]  # fmt: skip
    run(command, arguments)
    point = json.loads(out.read_text())["points"][0]
    assert point["requests_failed"] == 0, point["failures"]
    return {
        "ttft_p50_ms": point["ttft_ms"]["p50"],
        "tpot_mean_ms": point["tpot_ms"]["mean"],
        "tpot_p50_ms": point["tpot_ms"]["p50"],
        "tpot_with_first_mean_ms": point["tpot_with_first_ms"]["mean"],
        "e2e_p50_ms": point["e2e_ms"]["p50"],
        "output_tokens_per_s": point["output_tokens_per_s"],
    }


def with_guidellm(url: str, arguments: argparse.Namespace, scratch: Path) -> Figures:
    out = scratch / "guidellm.json"
    command = [
        str(arguments.guidellm), "run", "--disable-console",
        "--backend", f"kind=openai_http,target={url},model=step,request_format=/v1/completions,http2=false",
        "--profile", f"kind=concurrent,streams={arguments.streams}",
        "--constraint", f"kind=max_duration,seconds={arguments.seconds}",
        "--tokenizer", f"kind=huggingface_auto,model={ROOT / 'models' / 'demo'}",
        "--data", f"kind=synthetic_text,prompt_tokens={arguments.input},output_tokens={arguments.output}",
        "--output", f"kind=json,path={out}",
    ]  # fmt: skip
    run(command, arguments)
    metrics: dict[str, Any] = json.loads(out.read_text())["benchmarks"][0]["metrics"]

    def value(metric: str, statistic: str) -> float:
        successful = metrics[metric]["successful"]
        return float(successful.get("percentiles", {}).get(statistic, successful.get(statistic)))

    return {
        "ttft_p50_ms": value("time_to_first_token_ms", "p50"),
        "tpot_mean_ms": value("inter_token_latency_ms", "mean"),
        "tpot_p50_ms": value("inter_token_latency_ms", "p50"),
        "tpot_with_first_mean_ms": value("time_per_output_token_ms", "mean"),
        "e2e_p50_ms": value("request_latency", "p50") * 1e3,
        "output_tokens_per_s": value("output_tokens_per_second", "mean"),
    }


def run(command: list[str], arguments: argparse.Namespace) -> None:
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    limit = arguments.seconds + LIMIT_S
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def truth(arguments: argparse.Namespace) -> Figures:
    """What an ideal client of an ideal server would see. In a closed loop requests arrive just after a tick,
    so that a first token comes a whole number of steps later.
    """
    step, n = arguments.step_ms, arguments.output
    first = math.ceil(arguments.first_ms / step) * step
    whole = first + (n - 1) * step
    return {
        "ttft_p50_ms": first,
        "tpot_mean_ms": step,
        "tpot_p50_ms": step,
        "tpot_with_first_mean_ms": whole / n,
        "e2e_p50_ms": whole,
        "output_tokens_per_s": arguments.streams * n / whole * 1e3,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--guidellm", type=Path, required=True, help="the program")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--step-ms", type=float, default=20.0)
    parser.add_argument("--first-ms", type=float, default=110.0)
    parser.add_argument("--input", type=int, default=64)
    parser.add_argument("--output", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    tools: dict[str, Callable[[str, argparse.Namespace, Path], Figures]] = {
        "blink": with_blink,
        "guidellm": with_guidellm,
    }
    runs: dict[str, list[Figures]] = {name: [] for name in tools}
    reports: dict[str, list[dict[str, float]]] = {name: [] for name in tools}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(arguments.rounds):
            for name, tool in tools.items():
                with step_server(arguments, reports[name]) as url:
                    runs[name].append(tool(url, arguments, Path(scratch)))
    ideal = truth(arguments)
    print(f"{'':<26}{'server asked for':>18}" + "".join(f"{name:>12}" for name in tools))
    for figure, value in ideal.items():
        medians = [median(one[figure] for one in runs[name]) for name in tools]
        print(f"{figure:<26}{value:>18.2f}" + "".join(f"{found:>12.2f}" for found in medians))
    if arguments.out:
        result = {
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "commit": arguments.commit,
            "cores": os.cpu_count(),
            "options": {
                key: str(value) for key, value in vars(arguments).items() if key not in RECORDED_APART
            },
            "server_asked_for": ideal,
            "runs": runs,
            "server_reports": reports,
        }
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
