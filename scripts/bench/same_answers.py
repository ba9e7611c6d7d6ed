#!/usr/bin/env python3
"""How many tokens of answers are others with speculation than without.

    python scripts/bench/same_answers.py --model models/demo --device gpu --tokens 100000
    python scripts/bench/same_answers.py --ways '{"method": "ngram", "num_speculative_tokens": 5}'

Sends the same prompts, --clients at once, to one engine without drafts, once more without, and in each of the
--ways, greedy and then sampled, and compares the answers: how many differ, of how many tokens up to the first
difference. Where logits are the same to the last bit, answers are. Which kernels serve a step depends on its
rows, and how prompts share steps on when they arrive, so even two runs without drafts may differ. With
--cached-prompts each prompt is computed alone before, and all but its last token comes from the prefix cache.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402
from bench.steps import line_of  # noqa: E402
from bench.ways import FORMS, NONE, Way, config_for, parse_way, speculate  # noqa: E402
from demo_model.tasks import TASKS, sample  # noqa: E402

from blink.flags import checked  # noqa: E402
from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from ringbuffer.abi import RequestFlags  # noqa: E402
from ringbuffer.client import RingClient  # noqa: E402

DRAFTS = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 1}'
ANSWER = 200  # tokens of each
LONGEST_PROMPT = 600
PAGE = 16  # tokens: the backend's usual page
COUNTS = ("steps", "draft_tokens", "accepted_tokens", "prefix_hits")
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 0.9, "top_p": 0.95},
}


def prompts(directory: Path, n: int, cached: bool) -> Iterator[list[int]]:
    """`cached`: of whole pages, and one token."""
    tokenizer, rng = Tokenizer.from_file(str(directory / "tokenizer.json")), random.Random(5)
    for _ in range(n):
        ids = tokenizer.encode(sample(rng.choice(list(TASKS)), rng).prompt).ids[-LONGEST_PROMPT:]
        yield ids[(len(ids) - 1) % PAGE :] if cached else ids


def answers(
    backend: Backend, asked: list[list[int]], clients: int, sampling: dict[str, Any]
) -> list[list[int]]:
    """All of them, `clients` at a time. Further ones begin when all of these have ended, so that prompts are
    taken in alike whatever the speed. If there is a prefix cache, each prompt is computed alone before."""
    client = RingClient(backend.ring)
    found = []
    for first in range(0, len(asked), clients):
        for prompt in asked[first : first + clients] if backend.options.prefix_cache else ():
            client.wait([client.submit(prompt, 1, flags=RequestFlags.IGNORE_EOS)], 120)
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


def runs(backend: Backend, asked: list[list[int]], clients: int, ways: list[Way]) -> Iterator[dict[str, Any]]:
    """A row for each way to sample and to speculate; `again` is the second run without drafts."""
    for sampling, fields in SAMPLINGS.items():
        first: list[list[int]] | None = None
        for name, way in [("none", NONE), ("again", NONE), *ways]:
            speculate(backend, way)
            began = time.monotonic()
            found = answers(backend, asked, clients, fields)
            row = {"sampling": sampling, "way": name, "seconds": time.monotonic() - began}
            stats = backend.ring.stats()
            row |= {count: stats[count] for count in COUNTS}
            yield row | (compared(first, found) if first else {})
            first = first or found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "demo")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--ways", nargs="+", type=checked(parse_way), default=[parse_way(DRAFTS)], help=FORMS)
    parser.add_argument("--tokens", type=int, default=100_000, help="of each run")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--batch-invariant", action="store_true", help="as `blink backend` has it")
    parser.add_argument("--cached-prompts", action="store_true", help="prompts come from the prefix cache")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    backend = Backend(
        BackendOptions(
            options.model, f"bench-same-{os.getpid()}", device=options.device, max_batch=options.clients,
            max_context=LONGEST_PROMPT + ANSWER + 64, prefix_cache=options.cached_prompts,
            speculative_config=config_for([way for _, way in options.ways]),
            batch_invariant=options.batch_invariant,
        )
    )  # fmt: skip
    backend.start()
    asked = list(prompts(options.model, -(-options.tokens // ANSWER), options.cached_prompts))
    rows = []
    for row in runs(backend, asked, options.clients, options.ways):
        rows.append(row)
        print(line_of(row), flush=True)
    machine = backend.device.name
    assert backend.stop(0.0)
    if options.out:
        record = {
            **origin("the same answers", machine, options.commit),
            "model": options.model.name,
            "clients": options.clients,
            "batch_invariant": options.batch_invariant,
            "cached_prompts": options.cached_prompts,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
