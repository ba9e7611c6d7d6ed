#!/usr/bin/env python3
"""How many tokens of answers are others with speculation than without.

    python scripts/bench/same_answers.py --model models/demo --device gpu --tokens 100000

Sends the same prompts, --clients at once, to one engine without drafts, once more without, and with them,
greedy and then sampled, and compares the answers: how many differ, of how many tokens up to the first
difference. Where logits are the same to the last bit, answers are. Which kernels serve a step depends on its
rows, and how prompts share steps on when they arrive, so even two runs without drafts may differ.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from demo_model.tasks import TASKS, sample  # noqa: E402

from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from gpu_backend.schedulers.base import SchedulerKind  # noqa: E402
from gpu_backend.speculation import Speculation  # noqa: E402
from ringbuffer.abi import RequestFlags  # noqa: E402
from ringbuffer.client import RingClient  # noqa: E402

DRAFTS = Speculation(5, 4, 1)
ANSWER = 200  # tokens of each
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_p": 0.95},
}


def prompts(directory: Path, n: int) -> Iterator[list[int]]:
    tokenizer, rng = Tokenizer.from_file(str(directory / "tokenizer.json")), random.Random(5)
    for _ in range(n):
        yield tokenizer.encode(sample(rng.choice(list(TASKS)), rng).prompt).ids


def answers(
    backend: Backend, asked: list[list[int]], clients: int, sampling: dict[str, Any]
) -> list[list[int]]:
    """All of them, `clients` at a time. Further ones begin when all of these have ended, so that prompts are
    taken in alike whatever the speed."""
    client = RingClient(backend.ring)
    found = []
    for first in range(0, len(asked), clients):
        streams = [
            client.submit(prompt, ANSWER, seed=first + n, flags=RequestFlags.IGNORE_EOS, **sampling)
            for n, prompt in enumerate(asked[first : first + clients])
        ]
        client.wait(streams, 120)
        found += [stream.tokens for stream in streams]
    client.close()
    return found


def compared(one: list[list[int]], other: list[list[int]]) -> dict[str, Any]:
    firsts = [
        next((i for i, (a, b) in enumerate(zip(x, y, strict=True)) if a != b), None)
        for x, y in zip(one, other, strict=True)
    ]
    until = [ANSWER if at is None else at + 1 for at in firsts]  # tokens that could differ for the first time
    differing = sum(at is not None for at in firsts)
    return {"answers": len(one), "differ": differing, "tokens": sum(until), "rate": differing / sum(until)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "demo")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    backend = Backend(
        BackendOptions(
            options.model, "bench-same", device=options.device, max_batch=options.clients, max_context=1024,
            speculative_config=DRAFTS, prefix_cache=False,
        )
    )  # fmt: skip
    backend.start()
    asked = list(prompts(options.model, -(-options.tokens // ANSWER)))
    asked = [prompt[-600:] for prompt in asked]
    for name, sampling in SAMPLINGS.items():
        runs = []
        for drafts in (0, 0, DRAFTS.max_drafts):
            backend.limits = replace(backend.limits, max_drafts=drafts)
            backend.change_scheduler(SchedulerKind.GPU)
            began = time.monotonic()
            runs.append(answers(backend, asked, options.clients, sampling))
            stats, seconds = backend.ring.stats(), time.monotonic() - began
            accepted = stats["accepted_tokens"]
            print(f"{name}, {drafts} drafts: {seconds:.1f} s, {stats['steps']} steps, {accepted} accepted")
        print(name, "again:", json.dumps(compared(runs[0], runs[1])))
        print(name, "with drafts:", json.dumps(compared(runs[0], runs[2])), flush=True)
    assert backend.stop(0.0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
