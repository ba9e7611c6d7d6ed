#!/usr/bin/env python3
"""LLM.generate beside closed loops over HTTP, in turn on one running backend: output tokens a second.

    scripts/bench/python_api.py --model models/demo --rounds 3 -- --device cpu
    scripts/bench/python_api.py --model /models/Llama-3.2-1B --open 64,512

A backend has two leases: one for a frontend with HTTP, whose clients are `blink bench serve`, with N requests
open at a time, and one for this process. Each way is measured in each round. LLM.generate is given as many
prompts as the loop with most streams answered, of the same lengths, and keeps as many open as there are
slots; it is measured from its call to its return. What stands behind `--` goes to `blink backend`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from blink import LLM, SamplingParams  # noqa: E402

START_S = 600.0
POLL_S = 0.2
TOKENS = (100, 1000)  # the range of ids in prompts, as of `blink bench serve`
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


def over_http(url: str, n_open: int, asked: argparse.Namespace) -> tuple[float, int]:
    """Output tokens a second of a closed loop, and how many requests it answered."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        subprocess.run(
            [
                *BLINK, "bench", "serve", url, f"--concurrency={n_open}", f"--input={asked.input}",
                f"--output={asked.output}", f"--duration={asked.seconds}", f"--json={file}",
            ],
            cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        (point,) = json.loads(file.read_text())["points"]
    return point["output_tokens_per_s"], point["requests_complete"]


def by_python(llm: LLM, n: int, asked: argparse.Namespace, seed: int) -> float:
    """Output tokens a second of one call."""
    source = random.Random(seed)
    prompts = [[source.randrange(*TOKENS) for _ in range(asked.input)] for _ in range(n)]
    params = SamplingParams(temperature=0, max_tokens=asked.output, ignore_eos=True)
    began = time.perf_counter()
    outputs = llm.generate(prompts, params, use_tqdm=False)
    seconds = time.perf_counter() - began
    return sum(len(output.outputs[0].token_ids) for output in outputs) / seconds


def measure(asked: argparse.Namespace, flags: Sequence[str]) -> dict[str, list[float]]:
    """Output tokens a second in each round, by what was measured."""
    ring, url = f"bench-python-{os.getpid()}", f"http://127.0.0.1:{asked.port}"
    found: dict[str, list[float]] = {}
    model = str(asked.model)
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
        for round_number in range(asked.rounds):
            most = 1
            for n_open in asked.open:
                rate, n = over_http(url, n_open, asked)
                most = max(most, n)
                found.setdefault(f"HTTP, {n_open} open", []).append(rate)
            found.setdefault("LLM.generate", []).append(by_python(llm, most, asked, round_number))
    return found


def main() -> int:
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "demo")
    parser.add_argument("--open", default="32,128", help="requests open at a time over HTTP, one or several")
    parser.add_argument("--input", type=int, default=64, help="tokens of prompts")
    parser.add_argument("--output", type=int, default=64, help="tokens of answers")
    parser.add_argument("--seconds", type=float, default=15.0, help="of each closed loop")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=18_400)
    asked = parser.parse_args(words[:cut])
    asked.open = [int(n) for n in asked.open.split(",")]
    for name, rates in measure(asked, words[cut + 1 :]).items():
        each = ", ".join(f"{rate:,.0f}" for rate in rates)
        print(f"{name:>16}: {statistics.median(rates):8,.0f} output tokens/s (median of {each})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
