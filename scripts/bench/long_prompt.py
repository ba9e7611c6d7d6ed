#!/usr/bin/env python3
"""A cold long prompt beside requests that decode: what it waits, and what they lose meanwhile.

    python scripts/bench/long_prompt.py --model llama-3.1-8b --prompt 65536 --beside 8 32 --targets 0 5

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. Each number of
--beside requests decodes at about --context tokens; then the prompt arrives. A row has its time to the first
token, alone and beside them, and the others' tokens a second before and meanwhile, each with every one of
--targets: milliseconds of --target-itl, 0 for none. `rate_behind` is the others' rate after it: without it,
too, they slow down while their contexts grow. So `share` is what they keep of the mean of the rates before
and after. `times` is how many times as long the prompt takes as alone, and `hidden` the share of its work
that took no time of theirs: if they keep the share r and it takes t times its time alone, that is
1 - t (1 - r).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402
from bench.steps import line_of, model_directory  # noqa: E402

from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from gpu_backend.schedulers.base import SchedulerKind  # noqa: E402
from ringbuffer.abi import RequestFlags  # noqa: E402
from ringbuffer.client import RingClient, Stream  # noqa: E402

WARM_TOKENS = 20  # of each request, before the rate counts
RATE_S = 0.5  # for which the rate before the prompt is measured
PROMPT_S = 120.0  # that the prompt may take
OUTPUT = 100_000  # tokens of those that decode: more than they get


def first_token(client: RingClient, prompt: Any) -> float:
    """Seconds until a prompt is answered."""
    began = time.monotonic()
    stream = client.submit(prompt, 1, flags=RequestFlags.IGNORE_EOS)
    client.wait([stream], PROMPT_S)
    return time.monotonic() - began


def count(client: RingClient, streams: list[Stream]) -> int:
    for stream in streams:
        client.poll(stream)
    return sum(len(stream.tokens) for stream in streams)


def rate_now(client: RingClient, streams: list[Stream]) -> float:
    """Tokens a second of all streams."""
    began, before = time.monotonic(), count(client, streams)
    time.sleep(RATE_S)
    return (count(client, streams) - before) / (time.monotonic() - began)


def measure(backend: Backend, beside: int, prompt_tokens: int, context: int) -> dict[str, float]:
    client, rng = RingClient(backend.ring), np.random.default_rng(1)
    vocab = int(client.region.header["vocab_size"][0])
    first_token(client, rng.integers(0, vocab, prompt_tokens))  # the first runs of its shapes
    alone = first_token(client, rng.integers(0, vocab, prompt_tokens))
    room = backend.limits.max_context - context
    streams = [
        client.submit(rng.integers(0, vocab, context), min(OUTPUT, room), flags=RequestFlags.IGNORE_EOS)
        for _ in range(beside)
    ]
    prompt = rng.integers(0, vocab, prompt_tokens)
    deadline = time.monotonic() + PROMPT_S
    while min(len(stream.tokens) for stream in streams) < WARM_TOKENS:
        assert time.monotonic() < deadline, backend.fault()
        count(client, streams)
        time.sleep(0.001)
    rate, before = rate_now(client, streams), count(client, streams)
    waited = first_token(client, prompt)
    meanwhile = (count(client, streams) - before) / waited
    behind = rate_now(client, streams)
    for stream in streams:
        client.cancel(stream)
    client.wait(streams, PROMPT_S)
    client.close()
    share, times = 2 * meanwhile / (rate + behind), waited / alone
    return {
        "alone_s": alone,
        "ttft_s": waited,
        "times": times,
        "rate": rate,
        "rate_meanwhile": meanwhile,
        "rate_behind": behind,
        "share": share,
        "hidden": 1 - times * (1 - share),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--quantization", choices=tuple(ROUNDINGS))
    parser.add_argument("--prompt", type=int, default=65536, help="tokens")
    parser.add_argument("--beside", type=int, nargs="+", default=[8, 32])
    parser.add_argument("--context", type=int, default=1000, help="tokens of each of those")
    parser.add_argument("--targets", type=float, nargs="+", default=[0.0], metavar="MS")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        directory, random = model_directory(options.model, Path(scratch))
        backend = Backend(
            BackendOptions(
                directory,
                "bench-long-prompt",
                device=options.device,
                random_weights=random,
                quantization=options.quantization,
                max_batch=max(options.beside) + 1,
                max_context=options.prompt + 64,
                prefix_cache=False,
            )
        )
        backend.start()
        for target in options.targets:
            backend.limits = replace(backend.limits, target_itl_ns=round(target * 1e6))
            backend.change_scheduler(SchedulerKind.GPU)
            for beside in options.beside:
                named = {"target_ms": target, "beside": beside}
                row = {**named, **measure(backend, beside, options.prompt, options.context)}
                rows.append(row)
                print(line_of(row), flush=True)
        machine = backend.device.name
        assert backend.stop(0.0)
    if options.out:
        record = origin("a long prompt beside others", machine, options.commit)
        record |= {"model": options.model, "quantization": options.quantization, "prompt": options.prompt}
        options.out.write_text(json.dumps({**record, "rows": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
