#!/usr/bin/env python3
"""Tokens a step of each way to look drafts up, on texts, without a model (lookups.cpp).

    .venv/bin/python scripts/bench/lookups.py README.md gpu_backend/options.py
    .venv/bin/python scripts/bench/lookups.py --since HEAD~100 docs/operations.md
    .venv/bin/python scripts/bench/lookups.py --tokenizer DIRECTORY README.md \\
        --config '{"method": "suffix", "num_speculative_tokens": 12}'

A text is said as if a model had answered so, after its first tokens; or, with --since, after the text as it
was in that commit, as an edit. All drafts that are found are checked, worth it or not. Prints a table: for
each text and each --config, tokens a step, drafts a step, and the share of the drafts that was right.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from gpu_backend.speculation import Speculation, parse_speculation  # noqa: E402

SOURCE = "scripts/bench/lookups.cpp"
FLAGS = ("-std=c++17", "-O2", "-Wall", "-Wextra", "-I.")
PLACES = 1 << 16  # of the index, as of a server with a long context
FIRST = 8  # tokens of a text, which are its prompt if nothing else is
CONFIGS = (
    '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}',
    '{"method": "suffix", "num_speculative_tokens": 5}',
)

Text = tuple[list[int], list[int]]  # the prompt, and what is said


def built() -> Path:
    program = ROOT / "build" / "bench" / "lookups"
    program.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["c++", *FLAGS, SOURCE, "-o", str(program)], cwd=ROOT, check=True)
    return program


def text_of(path: Path, tokenizer: Tokenizer, since: str | None) -> Text:
    said = tokenizer.encode(path.read_text(), add_special_tokens=False).ids
    if since is None:
        return said[:FIRST], said[FIRST:]
    command = ["git", "show", f"{since}:./{path.name}"]
    old = subprocess.run(
        command, cwd=path.resolve().parent, check=True, capture_output=True, text=True
    ).stdout
    return tokenizer.encode(old, add_special_tokens=False).ids, said


def played(program: Path, wanted: Speculation, texts: list[Text]) -> list[list[int]]:
    """Of each text: tokens, steps, drafts, and right ones."""
    numbers = (
        wanted.max_drafts, wanted.longest_match, wanted.shortest_match,
        math.ceil(wanted.drafts_per_matched_token * 2**16), int(wanted.least_share * 2**16), PLACES,
    )  # fmt: skip
    words = [word for prompt, said in texts for word in (len(prompt), len(said), *prompt, *said)]
    done = subprocess.run(
        [str(program), *map(str, numbers)],
        input=np.array(words, np.uint32).tobytes(),
        check=True,
        capture_output=True,
    )
    return [[int(word) for word in line.split()] for line in done.stdout.decode().splitlines()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--since", metavar="COMMIT", help="the prompt is the file as it was there")
    parser.add_argument("--tokenizer", type=Path, default=ROOT / "models/demo", metavar="DIRECTORY")
    parser.add_argument("--config", action="append", metavar="JSON", help="as in --speculative-config")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.tokenizer / "tokenizer.json"))
    texts = [text_of(path, tokenizer, options.since) for path in options.texts]
    program, configs = built(), options.config or CONFIGS
    found = [played(program, parse_speculation(config), texts) for config in configs]
    for n, config in enumerate(configs, 1):
        print(f"{n}: {config}")
    heads = [f"{n}: tokens, drafts a step, right" for n in range(1, len(configs) + 1)]
    print(f"\n| text | tokens | {' | '.join(heads)} |\n|{'---|' * (2 + len(configs))}")
    for path, *rows in zip(options.texts, *found, strict=True):
        cells = [
            f"{tokens / steps:.2f}, {drafts / steps:.2f}, {right / max(drafts, 1):.0%}"
            for tokens, steps, drafts, right in rows
        ]
        print(f"| {path} | {rows[0][0]} | {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
