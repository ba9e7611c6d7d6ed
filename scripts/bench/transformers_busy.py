#!/usr/bin/env python3
"""Which share of the time the GPU works under transformers' continuous batching: Hugging Face's own figure.

    scripts/bench/transformers_busy.py --model llama-3-8b --batching sync --json busy.json

Their article generates 8,192 tokens with a batch of 32 of an 8B model, first synchronously, with the GPU idle
for 24.0 % of 300.6 s, and then asynchronously. This runs one burst of that kind, of random weights as in
transformers_batching.py, and looks at the GPU in short windows spread over it: all kernels and copies by
PyTorch's profiler, which slows what it looks at, so the burst's time is of one without it where --no-look is
given. The GPU is busy while any of them runs. Where in the burst the windows lie follows from how long a step
of a short one takes; as later steps take longer, they lie in the burst's earlier part rather than its end.

What --json writes is what `blink bench timeline` draws. The comparison is `blink bench schedulers
scripts/bench/shapes/llama-3-8b.json --streams 32 --input 16 --output 1024`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402
from bench.transformers_batching import MODES, answers, load, prompts_of, running  # noqa: E402

from blink.bench.scheduler_runs import Workload  # noqa: E402
from blink.files import CheckedPath, writable_file  # noqa: E402
from blink.flags import checked, count  # noqa: E402

PROMPT = 16  # tokens; the article names none
STRIP_US = 300_000.0  # of a timeline
LOOKS, LOOK_S = 3, 1.0
WARM_TOKENS = 64  # of an answer of the short bursts in front: the first one compiles, the second one is timed
TOKENS_A_ROW = 2  # of a step at most: each token has a mask over the whole cache, which is copied
SLOWEST_STEP_S = 0.2  # of those that are waited for

Span = tuple[float, float]


def merged(spans: Sequence[Span]) -> list[Span]:
    """The same time without overlaps, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return found


def busy_share(spans: Sequence[Span]) -> float:
    """Of the time from the first begin to the last end. Raises ValueError without spans."""
    if not spans:
        raise ValueError("nothing ran on the GPU while it was looked at")
    whole = merged(spans)
    return sum(end - begin for begin, end in whole) / (whole[-1][1] - whole[0][0])


def strip(spans: Sequence[Span]) -> list[Span]:
    """The first STRIP_US microseconds of what ran, from 0."""
    whole = merged(spans)
    origin_us = whole[0][0]
    return [
        (begin - origin_us, min(end - origin_us, STRIP_US))
        for begin, end in whole
        if begin - origin_us < STRIP_US
    ]


def look(seconds: float) -> list[Span]:
    """What runs on the GPU in so many seconds from now, in microseconds."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        time.sleep(seconds)
        torch.cuda.synchronize()
    on_gpu = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return [(event.time_range.start, event.time_range.end) for event in on_gpu]


def begins(expected_s: float) -> list[float]:
    """When the looks at a burst begin, in seconds from its own begin: in the middles of equal parts of it."""
    return [(i + 0.5) / LOOKS * expected_s for i in range(LOOKS)]


def measure(manager: Any, work: Workload, expected_s: float | None = None) -> tuple[float, list[list[Span]]]:
    """Seconds of the burst, and what was seen of it where it is looked at: it is expected to take so long."""
    limit_s = work.output * SLOWEST_STEP_S + 60.0
    began = time.monotonic()
    manager.add_requests(inputs=prompts_of(work, seed=1), max_new_tokens=work.output)
    seen = []
    for at in begins(expected_s) if expected_s is not None else ():
        time.sleep(max(0.0, began + at - time.monotonic()))
        seen.append(look(LOOK_S))
    return answers(manager, work, began, limit_s), [
        spans for spans in seen if spans
    ]  # it may have ended early


def expected(manager: Any, short: Workload, work: Workload) -> float:
    """How long a burst takes whose steps are as long as those of the second of two short ones."""
    measure(manager, short)
    seconds, _ = measure(manager, short)
    return seconds / short.output * work.output


def record_of(name: str, work: Workload, seconds: float, seen: Sequence[Sequence[Span]]) -> dict[str, Any]:
    """As `blink bench schedulers` writes it, where that is the same."""
    shares = [busy_share(spans) for spans in seen]
    found: dict[str, Any] = {
        "decode": [],
        "strips": {},
        "makespan": [{"scheduler": name, "workload": str(work), "seconds": [seconds]}],
    }
    if shares:
        middle = sorted(shares)[len(shares) // 2]
        found["decode"] = [{"scheduler": name, "streams": work.requests, "busy": middle, "shares": shares}]
        found["strips"] = {name: {"engine": strip(seen[-1]), "scheduler": []}}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3-8b", help="a name of scripts/bench/shapes")
    parser.add_argument("--batching", choices=("sync", "async"), default="sync")
    parser.add_argument("--requests", type=checked(count), default=32, help="(default: 32)")
    parser.add_argument("--tokens", type=checked(count), default=8192, help="of each answer (default: 8192)")
    parser.add_argument("--no-look", action="store_true", help="only the time, which nothing slows then")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--json", action=CheckedPath, check=writable_file, metavar="FILE")
    options = parser.parse_args()
    work = Workload(options.requests, PROMPT, options.tokens)
    short = Workload(options.requests, PROMPT, min(WARM_TOKENS, options.tokens))
    (is_async,) = MODES[options.batching]
    step_tokens = TOKENS_A_ROW * work.requests
    with running(load(options.model), [work], is_async, step_tokens) as manager:
        expected_s = expected(manager, short, work)
        seconds, seen = measure(manager, work, None if options.no_look else expected_s)
    if not seen and not options.no_look:
        raise SystemExit(f"the burst ended after {seconds:.1f} s, before the first look at it")
    about = origin("schedulers", torch.cuda.get_device_name(), options.commit)
    record = about | {"model": options.model}
    record |= record_of(f"transformers {options.batching}", work, seconds, seen)
    print(f"{work}: {seconds:.1f} s; busy {[round(busy_share(spans), 4) for spans in seen]}")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
