#!/usr/bin/env python3
"""Tokens per second with speculation and without, on one engine in one run.

    python scripts/bench/speculation.py --model llama-3-8b --batch 1 8 --chances none 0.76,0.76,0.76
    python scripts/bench/speculation.py --model llama-3-8b --batch 1 --edits 0.9 --drafts 5
    python scripts/bench/speculation.py --model llama-3-8b --batch 1 8 32 --edits 0.001 --drafts 5

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. Each value of
--chances is one measurement: `none` without drafts, else drafts that are accepted with these chances, free of
charge. With --edits, drafts are looked up, in answers of which that share repeats the prompt (nearly 0: what
look-ups cost that find nothing). The batch decodes at about --context tokens. Tokens are counted by the
scheduler, between two completions of steps by the GPU's clock. Beside them: steps, gaps between them, and the
scheduler's longest turn.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402
from bench.steps import Snapshot, line_of, model_directory, percentile  # noqa: E402
from bench.ways import Way, config_for, parse_way, speculate  # noqa: E402

from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from gpu_backend.speculation import Speculation  # noqa: E402
from ringbuffer.abi import RequestFlags  # noqa: E402
from ringbuffer.client import RingClient  # noqa: E402

WARM_TOKENS = 40  # of each request, before anything is counted


def ways(options: argparse.Namespace) -> list[Way]:
    """What is measured, by name."""
    found = [parse_way(text) for text in options.chances]
    if options.edits:
        lookup = Speculation(options.drafts, 4, 2, copied_share=options.edits)
        found.append((f"edits {options.edits}", lookup))
    return found


def measure(backend: Backend, batch: int, context: int, tokens: int) -> dict[str, Any]:
    """One batch from its first tokens on, until `tokens` more of each request."""
    client, rng = RingClient(backend.ring), np.random.default_rng(1)
    vocab = int(client.region.header["vocab_size"][0])
    longest = WARM_TOKENS + tokens + 200
    prompts = [rng.integers(0, vocab, max(1, context - tokens // 2)) for _ in range(batch)]
    streams = [
        client.submit(prompt, longest, seed=n, flags=RequestFlags.IGNORE_EOS)
        for n, prompt in enumerate(prompts)
    ]
    wait_for(backend, batch * WARM_TOKENS, batch)
    first = Snapshot(backend)
    wait_for(backend, first.stats["tokens"] + batch * tokens, batch)
    last = Snapshot(backend)
    for stream in streams:
        client.cancel(stream)
    client.wait(streams, 30)
    client.close()
    ran = {name: last.stats[name] - first.stats[name] for name in first.stats}
    gaps = last.gaps - first.gaps
    return {
        "batch": batch,
        "tokens_per_s": ran["tokens"] / (last.done_ns - first.done_ns) * 1e9,
        "tokens_per_step": ran["tokens"] / ran["steps"] / batch,
        "accepted": ran["accepted_tokens"] / max(1, ran["draft_tokens"]),
        "run_us": float(np.sum(last.times["total_ns"] - first.times["total_ns"])) / ran["steps"] / 1e3,
        **turn_times(backend, last.committed),
        "step_us": (last.done_ns - first.done_ns) / ran["steps"] / 1e3,
        "gap_median_us": percentile(gaps, 0.5),
        "gap_p99_us": percentile(gaps, 0.99),
        "longest_turn_us": last.stats["longest_turn_ns"] / 1e3,
    }


def turn_times(backend: Backend, last: int) -> dict[str, float]:
    """Medians of the last 1,000 steps: from the end of a step until the scheduler sees it; from there until
    it has chosen the next one's drafts, if it chooses any, and until it has launched that; and until that
    begins. Negative where it was launched before.
    """
    trace = backend.setup.trace()
    trace = trace[(trace["id"] > last - 1000) & (trace["id"] <= last)]
    before, after = trace[:-1], trace[1:]
    follows = after["id"] == before["id"] + 1
    before, after = before[follows], after[follows]

    def median(begin: Any, end: Any) -> float:
        return float(np.median(end.astype(np.int64) - begin.astype(np.int64))) / 1e3

    found = {
        "seen_us": median(before["done_ns"], before["seen_ns"]),
        "launched_us": median(before["seen_ns"], after["launched_ns"]),
        "begun_us": median(after["launched_ns"], after["start_ns"]),
    }
    if after["chosen_ns"].all():
        found["chosen_us"] = median(before["seen_ns"], after["chosen_ns"])
    return found


def wait_for(backend: Backend, tokens: int, batch: int) -> None:
    while (stats := backend.ring.stats())["tokens"] < tokens or stats["running"] < batch:
        assert backend.fault() is None, backend.fault()
        time.sleep(0.0005)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--quantization", choices=tuple(ROUNDINGS))
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--chances", nargs="+", default=["none"])
    parser.add_argument("--edits", type=float, default=0.0)
    parser.add_argument("--drafts", type=int, default=5, help="that are looked up, with --edits")
    parser.add_argument("--context", type=int, default=1024, help="tokens a request holds at half time")
    parser.add_argument("--tokens", type=int, default=600, help="of each request that are counted")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    wanted = ways(options)
    with tempfile.TemporaryDirectory() as scratch:
        directory, random = model_directory(options.model, Path(scratch))
        backend = Backend(
            BackendOptions(
                directory,
                "bench-speculation",
                device=options.device,
                random_weights=random,
                quantization=options.quantization,
                max_batch=max(options.batch),
                max_context=options.context + options.tokens + 512,
                speculative_config=config_for([way for _, way in wanted]),
            )
        )
        started = time.monotonic()
        backend.start()
        print(f"ready after {time.monotonic() - started:.1f} s", flush=True)
        for batch in options.batch:
            for name, way in wanted:
                speculate(backend, way)
                row = {"way": name, **measure(backend, batch, options.context, options.tokens)}
                rows.append(row)
                print(line_of(row), flush=True)
        machine = backend.device.name
        assert backend.stop(0.0)
    if options.out:
        record = {
            **origin("speculation", machine, options.commit),
            "model": options.model,
            "quantization": options.quantization,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
