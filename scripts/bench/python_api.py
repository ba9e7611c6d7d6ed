#!/usr/bin/env python3
"""LLM.generate beside closed loops over HTTP, in turn on one running backend: output tokens a second.

    scripts/bench/python_api.py --model models/demo --rounds 3 -- --device cpu
    scripts/bench/python_api.py --model /models/Llama-3.2-1B --open 64,512 --prompts 4000

A backend has two leases: one for a frontend with HTTP, whose clients are `blink bench serve`, with N requests
open at a time, and one for this process. Each way is measured in each round, with lengths of one distribution
and with prompts that nobody sent before, so that the prefix cache helps nobody. LLM.generate keeps as many
prompts open as its lease has slots. What stands behind `--` goes to `blink backend`.

A closed loop is measured over its window without the first tenth. LLM.generate is measured from its call to
its return, and once more without its two ends: from when a tenth of the prompts have their first token until
the last one has it, after which fewer and fewer are left. The more prompts, the less the ends weigh.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from blink import LLM, SamplingParams  # noqa: E402
from blink.bench.trace import lengths  # noqa: E402
from nic_frontend.abi import Health  # noqa: E402

START_S = 600.0
POLL_S = 0.2
LOOK_S = 0.01  # between two looks at what has arrived
BEGINNING = 0.1  # of a window or of the prompts, that counts for no steady rate
STEADY_S = 1.0  # of a call, at least, for a steady rate
TOKENS = (100, 1000)  # the range of ids in prompts, as of `blink bench serve`
SEEDS = 10  # from one run's seed to the next: `blink bench serve` takes the next one for its warm-up
WARM_UP = 8  # prompts, as of `blink bench serve`
PYTHON = "LLM.generate"
BLINK = (sys.executable, "-m", "blink")


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """A process of blink's."""
    with subprocess.Popen([*BLINK, *command], cwd=ROOT) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_until_healthy(url: str) -> None:
    """Raises TimeoutError."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError), urllib.request.urlopen(f"{url}/health"):
            return
        time.sleep(POLL_S)
    raise TimeoutError(f"{url} does not serve after {START_S:g} s")


def over_http(url: str, n_open: int, asked: argparse.Namespace, seed: int) -> tuple[float, int]:
    """Output tokens a second of a closed loop, and how many requests it answered."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        subprocess.run(
            [
                *BLINK, "bench", "serve", url, f"--concurrency={n_open}", f"--input={asked.input}",
                f"--output={asked.output}", f"--duration={asked.seconds}", f"--json={file}",
                f"--seed={seed}", f"--drop={BEGINNING}", f"--warmup={WARM_UP}",
            ],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        (point,) = json.loads(file.read_text())["points"]
    if point["client"]["bottleneck"]:
        print(f"with {n_open} open, the client of HTTP was the bottleneck", file=sys.stderr)
    return point["output_tokens_per_s"], point["requests_complete"]


class Progress(NamedTuple):
    """What has arrived at a time."""

    at_s: float
    tokens: int
    begun: int  # prompts that have their first token


@contextlib.contextmanager
def watched(llm: LLM) -> Iterator[list[Progress]]:
    """What arrives meanwhile, in the order of time."""
    metrics = llm._engine.service.metrics
    seen: list[Progress] = []
    ended = threading.Event()

    def look() -> None:
        figures = metrics.figures(0, Health())
        begun = sum(figures["histograms"]["time_to_first_token_seconds"]["counts"])
        seen.append(Progress(time.perf_counter(), metrics.generation_tokens, begun))

    def keep_looking() -> None:
        while not ended.wait(LOOK_S):
            look()

    look()
    thread = threading.Thread(target=keep_looking)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        look()


def steady(seen: Sequence[Progress], n: int) -> float | None:
    """Tokens a second while there were prompts that had not begun, without the beginning. None where that was
    over at once, as with no more prompts than slots."""
    before = seen[0].begun
    first = next(one for one in seen if one.begun - before >= BEGINNING * n)
    last = next(one for one in seen if one.begun - before >= n)
    seconds = last.at_s - first.at_s
    return (last.tokens - first.tokens) / seconds if seconds >= STEADY_S else None


def by_python(llm: LLM, n: int, asked: argparse.Namespace, seed: int) -> tuple[float, float | None]:
    """Output tokens a second of one call, and those without its two ends."""
    source = np.random.default_rng(seed)
    inputs, outputs = asked.input.sample(n, source), asked.output.sample(n, source)
    prompts = [source.integers(*TOKENS, length).tolist() for length in inputs]
    params = [
        SamplingParams(temperature=0, max_tokens=length, ignore_eos=True) for length in outputs.tolist()
    ]
    with watched(llm) as seen:
        began = time.perf_counter()
        answers = llm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - began
    tokens = sum(len(answer.outputs[0].token_ids) for answer in answers)
    return tokens / seconds, steady(seen, n)


def measure(asked: argparse.Namespace, flags: Sequence[str]) -> dict[str, list[float]]:
    """Output tokens a second in each round, by what was measured."""
    ring, url = f"bench-python-{os.getpid()}", f"http://127.0.0.1:{asked.port}"
    found: dict[str, list[float]] = {}
    model = str(asked.model)
    seeds = itertools.count(1, SEEDS)
    with contextlib.ExitStack() as started:
        started.enter_context(running(["backend", model, f"--ring={ring}", "--leases=2", *flags]))
        frontend = [
            "frontend",
            model,
            f"--ring={ring}",
            f"--port={asked.port}",
            f"--attach-timeout={START_S}",
        ]
        started.enter_context(running([*frontend, "--log-level=warning"]))
        wait_until_healthy(url)
        llm = started.enter_context(LLM(model, ring=ring))
        by_python(llm, WARM_UP, asked, next(seeds))
        for _ in range(asked.rounds):
            most = 1
            for n_open in asked.open:
                rate, n = over_http(url, n_open, asked, next(seeds))
                most = max(most, n)
                found.setdefault(f"HTTP, {n_open} open", []).append(rate)
            rate, without_ends = by_python(llm, asked.prompts or most, asked, next(seeds))
            found.setdefault(PYTHON, []).append(rate)
            if without_ends is not None:
                found.setdefault(f"{PYTHON}, without its ends", []).append(without_ends)
    return found


def report(found: dict[str, list[float]]) -> None:
    for name, rates in found.items():
        each = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"{name:>30}: {statistics.median(rates):8,.0f} output tokens/s (median of {each})")
    of_http = max(statistics.median(rates) for name, rates in found.items() if not name.startswith(PYTHON))
    for name, rates in found.items():
        if name.startswith(PYTHON):
            print(f"{name:>30}: {statistics.median(rates) / of_http:8.1%} of the fastest closed loop")


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "demo")
    parser.add_argument("--open", default="32,128", help="requests open at a time over HTTP, one or several")
    parser.add_argument("--input", type=lengths, default="64", help="tokens of prompts, as LOW-HIGH or one")
    parser.add_argument("--output", type=lengths, default="32-96", help="tokens of answers, written likewise")
    parser.add_argument(
        "--prompts", type=int, help="of LLM.generate (default: as many as the fastest loop answered)"
    )
    parser.add_argument("--seconds", type=float, default=15.0, help="of each closed loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=18_400)
    asked = parser.parse_args(words[:cut])
    asked.open = [int(n) for n in asked.open.split(",")]
    report(measure(asked, words[cut + 1 :]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
