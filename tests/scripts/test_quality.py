"""What rounding the demo model's weights, or its keys and values, to fp8 does to its answers
(scripts/bench/quality.py)."""

from __future__ import annotations

import pytest
from bench.quality import DEMO, Quality, Question, Rounded, quality_of, questions_of
from tokenizers import Tokenizer

from gpu_backend.models.quantization import ScaleForm

TOKENS = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
LONGEST = 900  # tokens of an answer

KINDS = {"weights": Rounded(ScaleForm.ROW), "keys and values": Rounded(kv_cache=True)}


def quality(questions: list[Question], kind: Rounded) -> Quality:
    return quality_of(DEMO, kind, TOKENS, questions, 1)


def test_short_answers_are_as_right_as_before() -> None:
    questions = questions_of(TOKENS, 1)[:16]
    plain = quality(questions, Rounded())
    assert plain.right == len(questions)
    for name, kind in KINDS.items():
        rounded = quality(questions, kind)
        assert rounded.right >= 0.95 * plain.right, name
        assert rounded.perplexity != plain.perplexity, name  # it is another model
        assert rounded.perplexity == pytest.approx(plain.perplexity, rel=0.02), name


@pytest.mark.slow
def test_all_kinds_of_answers_are_as_right_as_before() -> None:
    """And nearly all are the same to the last token; a story may go on otherwise. The longest two, of some
    thousand tokens each, would take twice the time of all others: prompts that are longer stand for them."""
    questions = [question for question in questions_of(TOKENS, 1) if len(question.answer) < LONGEST]
    assert max(len(question.prompt) for question in questions) > 1000
    plain = quality(questions, Rounded())
    assert plain.right >= 0.95 * len(questions)
    for name, kind in KINDS.items():
        rounded = quality(questions, kind)
        assert rounded.right >= 0.95 * plain.right, name
        same = sum(a == b for a, b in zip(plain.answers, rounded.answers, strict=True))
        assert same >= 0.9 * len(questions), name
        assert rounded.perplexity == pytest.approx(plain.perplexity, rel=0.01), name
