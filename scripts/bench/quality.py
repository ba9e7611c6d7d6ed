#!/usr/bin/env python3
"""What fp8 and four bits cost in quality: the demo model's answers and perplexity, on the reference engine.

    scripts/bench/quality.py --items 20

A row for the model as it is, one for each way of rounding its weights, and one for an fp8 KV cache.
"right": answers to held-out tasks that a program accepts (scripts/demo_model/tasks.py), decoded greedily;
"same": those that are the first row's to the last token; perplexity: of the right answers, given the
questions. The engine computes in fp32 with the values of weights, keys and values: what differs from row to
row is their rounding alone.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from demo_model import tasks, tokenizer  # noqa: E402
from demo_model.evaluate import STYLES, heldout_items, prompt_ids  # noqa: E402
from engine_driver import EngineDriver  # noqa: E402

from gpu_backend.engines.base import Limits  # noqa: E402
from gpu_backend.engines.reference import HostMemory, ReferenceEngine  # noqa: E402
from gpu_backend.models.fields import UnsupportedModel  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS, Form  # noqa: E402
from gpu_backend.models.registry import read_model  # noqa: E402
from gpu_backend.weights.checkpoint import Checkpoint  # noqa: E402
from gpu_backend.weights.layout import as_stored  # noqa: E402

DEMO = ROOT / "models" / "demo"
ROWS = 16  # that are worked on together
MORE_TOKENS = 24  # than the right answer has: an answer that is longer is wrong
AS_IT_IS = "as the checkpoint"


@dataclass(frozen=True)
class Question:
    """A prompt, the tokens of its right answer, and the item that checks what comes."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    item: tasks.Item


@dataclass(frozen=True)
class Quality:
    """Of one kind of weights: the answers' tokens, how many are right, and the perplexity."""

    answers: tuple[tuple[int, ...], ...]
    right: int
    perplexity: float


@dataclass(frozen=True)
class Rounded:
    """What is rounded: weights, to this form, and keys and values, to fp8."""

    weights: Form | None = None
    kv_cache: bool = False


class HostModel:
    """The reference engine over a model directory, of which some is rounded. Raises
    UnsupportedModel."""

    def __init__(self, directory: Path, rounded: Rounded, context: int, threads: int) -> None:
        checkpoint = Checkpoint(directory)
        config = as_stored(read_model(directory, rounded.weights), checkpoint)
        pages = ROWS * -(-context // 16)
        limits = Limits(ROWS, context, ROWS * 16, ROWS, 16, pages, kv_fp8=rounded.kv_cache)
        self._memory = HostMemory()
        self._driver = EngineDriver(self._memory, limits, config.vocab_size)
        shapes, batch = self._driver.grid.shapes, self._driver.batch
        self._engine = ReferenceEngine(config, checkpoint, limits, shapes, batch, threads)
        self._driver.run = self._engine.run

    def answer(self, questions: Sequence[Question], stop: set[int]) -> list[tuple[int, ...]]:
        """The greedy answers to at most ROWS questions, without what ends them."""
        driver = self._driver
        for row, question in enumerate(questions):
            driver.start(row, question.prompt)
            self._read(row, len(question.prompt))
        left = {row: len(q.prompt) + len(q.answer) + MORE_TOKENS for row, q in enumerate(questions)}
        while left := {row: end for row, end in left.items() if driver.tokens[row][-1] not in stop}:
            left = {row: end for row, end in left.items() if len(driver.tokens[row]) < end}
            if not left:
                break
            driver.decode(list(left))
        said = (driver.tokens[row][len(q.prompt) :] for row, q in enumerate(questions))
        return [tuple(token for token in answer if token not in stop) for answer in said]

    def surprise(self, questions: Sequence[Question]) -> float:
        """Minus the log of the likelihood of the right answers to at most ROWS questions."""
        total = 0.0
        for row, question in enumerate(questions):
            self._driver.start(row, question.prompt + question.answer)
            self._read(row, len(question.prompt) - 1)
        for i in range(max(len(question.answer) for question in questions)):
            rows = [row for row, question in enumerate(questions) if i < len(question.answer)]
            before = [len(questions[row].prompt) + i - 1 for row in rows]
            self._driver.prefill([(row, at, at + 1) for row, at in zip(rows, before, strict=True)])
            logits = self._engine.logits(len(rows)).astype(np.float64)
            most = logits.max(axis=1)
            sums = np.log(np.exp(logits - most[:, None]).sum(axis=1)) + most
            right = [questions[row].answer[i] for row in rows]
            total += float((sums - logits[np.arange(len(rows)), right]).sum())
        return total

    def _read(self, row: int, tokens: int) -> None:
        """The first tokens of the row, in chunks."""
        most = self._driver.limits.max_prefill_tokens
        for first in range(0, tokens, most):
            self._driver.prefill([(row, first, min(first + most, tokens))])

    def close(self) -> None:
        self._engine.close()
        self._memory.close()


def questions_of(tokens: Tokenizer, per_task: int, seed: int = 1) -> list[Question]:
    """Held-out items of every task, in both styles, those of like length together."""
    out = []
    for task in tasks.TASKS:
        for item in heldout_items(task, per_task, seed):
            answer = tuple(tokens.encode(f" {item.answer}", add_special_tokens=False).ids)
            out += [Question(tuple(prompt_ids(tokens, item, style)), answer, item) for style in STYLES]
    return sorted(out, key=lambda question: len(question.prompt) + len(question.answer))


def quality_of(
    directory: Path, rounded: Rounded, tokens: Tokenizer, questions: Sequence[Question], threads: int
) -> Quality:
    """Of a model. Raises UnsupportedModel."""
    stop = {tokenizer.special_id(tokens, token) for token in (tokenizer.EOS, tokenizer.END)}
    context = max(len(q.prompt) + len(q.answer) for q in questions) + MORE_TOKENS + 1
    answers: list[tuple[int, ...]] = []
    surprise = 0.0
    with ExitStack() as owned:
        model = HostModel(directory, rounded, context, threads)
        owned.callback(model.close)
        for first in range(0, len(questions), ROWS):
            some = questions[first : first + ROWS]
            answers += model.answer(some, stop)
            surprise += model.surprise(some)
    n = sum(len(question.answer) for question in questions)
    texts = (tokens.decode(answer) for answer in answers)
    right = sum(tasks.check(question.item, text) for question, text in zip(questions, texts, strict=True))
    return Quality(tuple(answers), right, float(np.exp(surprise / n)))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=DEMO, help="that train_demo_model.py has made")
    parser.add_argument("--items", type=int, default=10, help="of each task (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def main() -> int:
    options = parse()
    tokens = Tokenizer.from_file(str(options.model / "tokenizer.json"))
    questions = questions_of(tokens, options.items)
    first: Quality | None = None
    print(f"{'rounded':20s} {'right':>12s} {'same':>12s} {'perplexity':>11s}")
    kinds = {AS_IT_IS: Rounded(), **{name: Rounded(form) for name, form in ROUNDINGS.items()}}
    for name, rounded in {**kinds, "fp8 KV cache": Rounded(kv_cache=True)}.items():
        try:
            found = quality_of(options.model, rounded, tokens, questions, options.threads)
        except UnsupportedModel as error:
            print(f"{name:20s} {error}")
            continue
        first = first or found
        same = sum(a == b for a, b in zip(found.answers, first.answers, strict=True))
        n = len(questions)
        print(
            f"{name:20s} {found.right:5d} of {n:4d}{same:5d} of {n:4d} {found.perplexity:11.5f}", flush=True
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
