#!/usr/bin/env python3
"""How many tokens a step real models and real texts give with speculation, and tokens/s with it and without.

    python scripts/bench/real_acceptance.py --model smollm2 --requests 1 8
    python scripts/bench/real_acceptance.py --model models/demo --prompts tasks
    python scripts/bench/real_acceptance.py --model smollm2 --ways none '{"num_speculative_tokens": 8}'

Asks the questions of acceptance_prompts.py as chats: summaries, edits, code, counting, and answers in which
nothing repeats; or with --prompts tasks those that the demo model was made for. Answers end by themselves or
at --tokens. `tokens_per_step` is of one request: a step that checks its drafts gives one token, and those
that were accepted. `tokens_per_s` counts from the first prompt to the last token of a kind. Kind `all` is all
of them together, `speedup` is against the way `none`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.acceptance_prompts import TEXTS, of_tasks  # noqa: E402
from bench.origin import origin  # noqa: E402
from bench.steps import line_of  # noqa: E402
from bench.ways import FORMS, config_for, parse_way, speculate  # noqa: E402

from blink.flags import checked  # noqa: E402
from blink.model_directory import model_directory  # noqa: E402
from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from nic_frontend.templates.chat_template import ChatTemplate, read_source  # noqa: E402
from nic_frontend.templates.prompt_end import PromptEnd  # noqa: E402
from ringbuffer.abi import Reason  # noqa: E402
from ringbuffer.client import RingClient, Stream  # noqa: E402
from ringbuffer.region import Region  # noqa: E402

NGRAM = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'
SAMPLINGS: dict[str, dict[str, Any]] = {"greedy": {"temperature": 0.0}, "0.7": {"temperature": 0.7}}
SETTLE_S = 0.05  # until the scheduler has published its counters
ROUNDS = 2  # answers of each kind, as a multiple of the requests at a time
LONGEST_PROMPT = 1024
WAIT_S = 120.0
COUNTED = ("steps", "draft_tokens", "accepted_tokens")  # by the scheduler
ADDED = ("answers", "ended", "tokens", *COUNTED, "seconds")


def prompts(directory: Path, kinds: dict[str, tuple[str, ...]]) -> dict[str, list[list[int]]]:
    """Token ids of each question as a chat, by kind."""
    source = read_source(directory)
    if source is None:
        raise SystemExit(f"{directory} has no chat template")
    template, tokenizer = ChatTemplate(source), Tokenizer.from_file(str(directory / "tokenizer.json"))

    def ids(question: str) -> list[int]:
        text = template.render([{"role": "user", "content": question}], PromptEnd.ANSWER, {})
        return list(tokenizer.encode(text, add_special_tokens=False).ids)[-LONGEST_PROMPT:]

    return {kind: [ids(question) for question in questions] for kind, questions in kinds.items()}


def answers(
    client: RingClient, asked: Sequence[list[int]], at_once: int, tokens: int, fields: dict[str, Any]
) -> list[Stream]:
    """Of all prompts, so many at once: another one begins when one has ended."""
    ended: list[Stream] = []
    running: list[Stream] = []
    waiting = list(enumerate(asked))[::-1]
    deadline = time.monotonic() + WAIT_S
    while waiting or running:
        while waiting and len(running) < at_once:
            seed, prompt = waiting.pop()
            running.append(client.submit(prompt, tokens, seed=seed, **fields))
        for stream in running:
            client.poll(stream)
        ended += [stream for stream in running if stream.done]
        running = [stream for stream in running if not stream.done]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(running)} answers are still open")
        time.sleep(0.0002)
    return ended


def measure(
    backend: Backend, asked: Sequence[list[int]], at_once: int, tokens: int, fields: dict[str, Any]
) -> dict[str, Any]:
    """Of one kind."""
    assert isinstance(backend.ring, Region)
    client, before = RingClient(backend.ring), backend.ring.stats()
    began = time.monotonic()
    streams = answers(client, asked, at_once, tokens, fields)
    seconds = time.monotonic() - began
    time.sleep(SETTLE_S)
    after = backend.ring.stats()
    client.close()
    return {
        "answers": len(streams),
        "ended": sum(stream.reason == Reason.EOS for stream in streams),
        "tokens": sum(len(stream.tokens) for stream in streams),
        **{name: after[name] - before[name] for name in COUNTED},
        "seconds": seconds,
    }


def with_shares(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what follows from its counts (ADDED)."""
    accepted = row["accepted_tokens"]
    return {
        **row,
        "tokens_per_step": row["tokens"] / (row["tokens"] - accepted),
        "accepted": accepted / row["draft_tokens"] if row["draft_tokens"] else None,
        "tokens_per_s": row["tokens"] / row["seconds"],
    }


def all_kinds(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "all", **{name: sum(row[name] for row in rows) for name in ADDED}}


def rows_of(
    backend: Backend, asked: dict[str, list[list[int]]], at_once: int, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Of the way that the backend has begun, by sampling and kind, behind a round that warms it up."""
    n = max(ROUNDS * at_once, max(map(len, asked.values())))
    firsts = [questions[0] for questions in asked.values()]
    measure(backend, (firsts * at_once)[: max(at_once, len(firsts))], at_once, options.tokens // 2, {})
    for sampling, fields in SAMPLINGS.items():
        found = [
            {"kind": kind, **measure(backend, (questions * n)[:n], at_once, options.tokens, fields)}
            for kind, questions in asked.items()
        ]
        for row in (*found, all_kinds(found)):
            yield with_shares({"sampling": sampling, "requests": at_once, **row})


def add_speedups(rows: Sequence[dict[str, Any]]) -> None:
    """To rows of a way that the way `none` has, too."""

    def place(row: dict[str, Any]) -> tuple[Any, ...]:
        return row["sampling"], row["requests"], row["kind"]

    plain = {place(row): row["tokens_per_s"] for row in rows if row["way"] == "none"}
    for row in rows:
        if row["way"] != "none" and place(row) in plain:
            row["speedup"] = row["tokens_per_s"] / plain[place(row)]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True, help="a directory, demo or smollm2")
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--prompts", choices=("texts", "tasks"), default="texts")
    parser.add_argument(
        "--ways", nargs="+", type=checked(parse_way), default=[parse_way("none"), parse_way(NGRAM)],
        help=FORMS,
    )  # fmt: skip
    parser.add_argument("--requests", type=int, nargs="+", default=[1, 8], help="at a time")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer, at most")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    directory = model_directory(options.model)
    asked = prompts(directory, TEXTS if options.prompts == "texts" else of_tasks())
    backend = Backend(
        BackendOptions(
            directory, f"bench-acceptance-{os.getpid()}", device=options.device,
            max_batch=max(options.requests), prefix_cache=False,
            max_context=LONGEST_PROMPT + options.tokens + 64,
            speculative_config=config_for([way for _, way in options.ways]),
        )
    )  # fmt: skip
    backend.start()
    rows: list[dict[str, Any]] = []
    for name, way in options.ways:
        print(name)
        for at_once in options.requests:
            speculate(backend, way)
            for row in rows_of(backend, asked, at_once, options):
                rows.append({"way": name, **row})
                print("  " + line_of(row), flush=True)
    machine = backend.device.name
    assert backend.stop(0.0)
    add_speedups(rows)
    for row in rows:
        if "speedup" in row and row["kind"] == "all":
            shown = ("way", "sampling", "requests", "tokens_per_step", "accepted", "speedup")
            print(line_of({name: row[name] for name in shown}))
    if options.out:
        record = {
            **origin("acceptance", machine, options.commit),
            "model": directory.name,
            "prompts": options.prompts,
            "tokens": options.tokens,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
