#!/usr/bin/env python3
"""Answers that are held to forms while a server speculates: how many are not of their form. None may be.

    python scripts/bench/constrained_answers.py --answers 10000
    python scripts/bench/constrained_answers.py --device cpu --answers 50 --open 8 --processes 1 --frontends 1

Serves the demo model with real look-ups, and asks over HTTP for JSON of schemas, texts of regular
expressions, choices, grammars and tags, and calls of tools; then, from a server that takes all answers to
begin with reasoning, for a quarter as many with reasoning before them. Each answer is judged by jsonschema or
by Python's regular expressions, in the processes that ask. `cut` are those that max_tokens ended, which
nobody judges; `busiest_client` is the share of a core that the busiest of these processes used.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.constrained_cases import Case, Wrong, body_of, make_cases  # noqa: E402
from bench.origin import of_gpu, origin  # noqa: E402
from bench.servers import Blink  # noqa: E402
from bench.steps import line_of  # noqa: E402

CONFIG = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
ANSWER_S = 120.0
SHOWN = 20  # wrong answers that a record has
COUNTED = (  # by the scheduler, which each frontend tells alike
    "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total", "scheduler_steps_total",
    "scheduler_tokens_total",
)  # fmt: skip
ADDED = ("grammar_compile_time_seconds_count", "grammar_compile_time_seconds_sum")  # of all frontends
THOUGHTFUL = ("--reasoning-parser=deepseek_r1",)


@dataclass
class Tally:
    """What became of answers."""

    kinds: Counter[str] = field(default_factory=Counter)  # that have been judged
    wrong: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)  # by what the server said
    cut: int = 0
    tokens: int = 0
    cpu_s: float = 0.0  # of the process that asked; of several, of the busiest

    def add(self, other: Tally) -> None:
        self.kinds += other.kinds
        self.refused += other.refused
        self.wrong += other.wrong
        self.cut += other.cut
        self.tokens += other.tokens
        self.cpu_s = max(self.cpu_s, other.cpu_s)

    def judge(self, case: Case, status: int, answer: dict[str, Any]) -> None:
        if status != 200:
            self.refused[f"{status}: {json.dumps(answer)[:300]}"] += 1
            return
        (choice,) = answer["choices"]
        self.tokens += answer["usage"]["completion_tokens"]
        if choice["finish_reason"] == "length":
            self.cut += 1
            return
        self.kinds[case.kind] += 1
        try:
            case.judge(choice)
        except Wrong as error:
            self.wrong.append(f"{case.kind}: {error}")


class Asker:
    """Asks a server at `port` for a share of the answers, over one connection for each of its threads."""

    def __init__(self, port: int, cases: Sequence[Case]) -> None:
        self._port, self._cases = port, cases
        self._own = threading.local()

    def ask(self, number: int) -> Tally:
        case, found = self._cases[number % len(self._cases)], Tally()
        if not hasattr(self._own, "connection"):
            self._own.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_S)
        headers = {"content-type": "application/json"}
        self._own.connection.request(
            "POST", "/v1/chat/completions", json.dumps(body_of(case, number)), headers
        )
        response = self._own.connection.getresponse()
        found.judge(case, response.status, json.loads(response.read()))
        return found


@dataclass(frozen=True)
class Order:
    """For one process: the answers with these numbers, so many open at once, about `cases` forms."""

    port: int
    numbers: range
    open: int
    cases: int
    seed: int
    with_thoughts: bool


def asked(order: Order) -> Tally:
    asker, total = Asker(order.port, make_cases(order.cases, order.seed, order.with_thoughts)), Tally()
    with ThreadPoolExecutor(order.open) as threads:
        for found in threads.map(asker.ask, order.numbers):
            total.add(found)
    total.cpu_s = time.process_time()
    return total


def counters(port: int) -> dict[str, float]:
    """Of /metrics."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_S)
    connection.request("GET", "/metrics")
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    found = {
        name: [float(line.split()[-1]) for line in lines if line.startswith(f"blink:{name}{{")]
        for name in (*COUNTED, *ADDED)
    }
    return {name: sum(values) if name in ADDED else values[0] for name, values in found.items()}


def measured(arguments: argparse.Namespace, with_thoughts: bool, log: Path) -> dict[str, Any]:
    """All answers of one server."""
    flags = [
        f"--device={arguments.device}", f"--speculative-config={arguments.config}",
        f"--max-batch={arguments.open}", *(THOUGHTFUL if with_thoughts else ()),
    ]  # fmt: skip
    started = argparse.Namespace(
        server_cores=sorted(os.sched_getaffinity(0)), frontend_cores=None, frontends=arguments.frontends,
        start_timeout=240.0, server_flag=flags, part="",
    )  # fmt: skip
    server = Blink(started, arguments.model, random_weights=False)
    n = arguments.answers // 4 if with_thoughts else arguments.answers
    orders = [
        Order(
            server.port, range(first, n, arguments.processes), -(-arguments.open // arguments.processes),
            arguments.cases, arguments.seed, with_thoughts,
        )
        for first in range(arguments.processes)
    ]  # fmt: skip
    total = Tally()
    context = multiprocessing.get_context("spawn")
    with server.running(log), ProcessPoolExecutor(arguments.processes, context) as processes:
        began = time.monotonic()
        for found in processes.map(asked, orders):
            total.add(found)
        seconds, counted = time.monotonic() - began, counters(server.port)
    return {
        "with_thoughts": with_thoughts,
        "judged": total.kinds.total(),
        "wrong": len(total.wrong),
        "cut": total.cut,
        "refused": total.refused.total(),
        "tokens": total.tokens,
        "seconds": seconds,
        "busiest_client": total.cpu_s / seconds,
        "start_s": server.start_s,
        **counted,
        "kinds": dict(total.kinds),
        "wrong_answers": total.wrong[:SHOWN],
        "refusals": dict(total.refused.most_common(SHOWN)),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "demo")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--config", default=CONFIG, help="of --speculative-config")
    parser.add_argument("--answers", type=int, default=10_000)
    parser.add_argument("--open", type=int, default=64, help="requests at a time")
    parser.add_argument(
        "--cases", type=int, default=200, help="different forms, each asked for again and again"
    )
    parser.add_argument("--processes", type=int, default=6, help="that ask and judge")
    parser.add_argument("--frontends", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "server.log")
        rows = [measured(arguments, with_thoughts, log) for with_thoughts in (False, True)]
    for row in rows:
        print(line_of(row), flush=True)
    if arguments.out:
        record = {
            **origin("constrained answers", of_gpu("name") or "cpu", arguments.commit),
            "model": arguments.model.name,
            "config": json.loads(arguments.config),
            "open": arguments.open,
            "rows": rows,
        }
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    return 1 if any(row["wrong"] or row["refused"] for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
