#!/usr/bin/env python3
"""What the frontend's tokenizer takes of a processor beside Hugging Face's `tokenizers`, as in the
Blink paper's Figure 4.

    .venv/bin/python scripts/bench/tokenizing.py --model smollm2 --json build/bench/tokenizing.json

Texts of so many tokens are cut from this repository's documents and sources, at places that a seed chooses.
The frontend's side is what it awaits for a prompt (nic_frontend/text/tokenizer.py), with the event loop's
part; the other is `Tokenizer.encode` of the same tokenizer.json. In a round, each side tokenizes the same
texts of a length, and the sides take turns. A round's figure is its CPU time, of all threads, divided by its
texts: others that use the machine disturb it less than they would the time on the clock. The first round of a
length is not counted, so caches of words are warm, as those of a server are. No text comes twice,
so none is found in a cache as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.origin import origin  # noqa: E402

from blink.bench import environment  # noqa: E402
from blink.bench.metrics import summary  # noqa: E402
from blink.bench.tables import table  # noqa: E402
from blink.files import CheckedPath, writable_file  # noqa: E402
from blink.flags import checked, count  # noqa: E402
from blink.model_directory import model_directory  # noqa: E402
from nic_frontend.text.tokenizer import Tokenizer  # noqa: E402

LENGTHS = (10, 32, 128, 512, 2048)
PAPER = "8 to 19.7"  # times as fast as `tokenizers`, on a BlueField-3 beside a Xeon
SEED = 1
TEXTS = 16  # of each round
CHARACTERS = 500_000  # that they are cut from
SUFFIXES = (".md", ".py", ".h")

Encode = Callable[[str], Awaitable[int]]  # how many tokens a text has


def corpus() -> str:
    """Documents first: people's prompts are more like them."""
    files = [path for suffix in SUFFIXES for path in sorted(ROOT.glob(f"[a-z]*/**/*{suffix}"))]
    return "\n".join(path.read_text() for path in files if "build" not in path.parts)


def cut(text: str, places: Sequence[tuple[int, int]], length: int, n: int) -> list[str]:
    """`n` different texts of about `length` tokens, whose `places` in `text` are given: where a cut splits a
    word, its parts may be tokens of their own. Raises ValueError where there are not so many."""
    starts = list(range(len(places) - length + 1))
    random.Random(f"{SEED} {length}").shuffle(starts)
    found: dict[str, None] = {}
    for at in starts:
        found[text[places[at][0] : places[at + length - 1][1]]] = None
        if len(found) == n:
            return list(found)
    raise ValueError(
        f"the text has {len(found)} different parts of {length} tokens, which is too few for {n}"
    )


async def cpu_us(encode: Encode, texts: list[str]) -> tuple[float, int]:
    """Microseconds of CPU time a text, and how many tokens all have."""
    began = time.process_time_ns()
    tokens = sum([await encode(text) for text in texts])
    return (time.process_time_ns() - began) / len(texts) / 1e3, tokens


async def compare(sides: dict[str, Encode], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Each round takes texts of its own. Raises ValueError where the sides do not find the same number of
    tokens."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(1 + rounds):
        own = texts[turn :: 1 + rounds]
        measured = {name: await cpu_us(encode, own) for name, encode in sides.items()}
        if len({tokens for _, tokens in measured.values()}) > 1:
            raise ValueError(f"the sides find different tokens: {measured}")
        for name, (us, _) in measured.items():
            if turn:
                found[name].append(us)
    return found


async def measure(directory: Path, lengths: tuple[int, ...], rounds: int) -> dict[str, Any]:
    reference = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    reference.no_padding()
    reference.no_truncation()
    ours = Tokenizer(directory, reference.get_vocab_size())
    text = corpus()[:CHARACTERS]
    places = reference.encode(text, add_special_tokens=False).offsets

    async def blink(text: str) -> int:
        (tokens,) = await ours.encode([text], special=False, param="prompt")
        return len(tokens)

    async def hugging_face(text: str) -> int:
        return len(reference.encode(text, add_special_tokens=False).ids)

    rows = []
    for length in lengths:
        texts = cut(text, places, length, TEXTS * (1 + rounds))
        found = await compare({"blink": blink, "tokenizers": hugging_face}, texts, rounds)
        figures = {name: summary_of(times) for name, times in found.items()}
        faster = figures["tokenizers"]["p50"] / figures["blink"]["p50"]
        tokens = (
            sum(len(reference.encode(one, add_special_tokens=False).ids) for one in texts[:TEXTS]) / TEXTS
        )
        rows.append({"tokens": length, "mean_tokens": tokens, "times_as_fast": faster, "cpu_us": figures})
    return {"engine": ours.engine, "vocabulary": reference.get_vocab_size(), "rows": rows}


def summary_of(times: list[float]) -> dict[str, float]:
    found = summary(np.array(times))
    assert found is not None  # --rounds is at least 1
    return found


def report(record: dict[str, Any]) -> str:
    heads = ("tokens", "blink us", "p99", "tokenizers us", "p99", "times as fast")
    rows = [
        [
            row["tokens"],
            *(
                f"{row['cpu_us'][side][part]:.1f}"
                for side in ("blink", "tokenizers")
                for part in ("p50", "p99")
            ),
            f"{row['times_as_fast']:.1f}",
        ]
        for row in record["rows"]
    ]
    heading = "{model}, {vocabulary} tokens, by {engine}; CPU time a text; {machine}, {date} {commit}"
    paper = f"the paper: {PAPER} times as fast, on other machines"
    return "\n".join((heading.format(**record), table(heads, rows), paper))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", help="whose tokenizer.json (default: smollm2)")
    parser.add_argument("--rounds", type=checked(count), default=30, help="of each length (default: 30)")
    parser.add_argument("--commit", help="recorded with the results (default: what git says)")
    parser.add_argument("--json", action=CheckedPath, check=writable_file, metavar="FILE")
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    measured = asyncio.run(measure(model_directory(options.model), LENGTHS, options.rounds))
    machine = environment.describe()
    record = {
        **origin("tokenizing", f"{machine['processor']}, {machine['cores']} cores", options.commit),
        "model": Path(options.model).stem,
        "rounds": options.rounds,
        "texts": TEXTS,
        "tokenizers": tokenizers.__version__,
        **measured,
    }
    print(report(record))
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
