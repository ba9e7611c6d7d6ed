"""What rounding the demo model's weights to fp8 does to its answers (scripts/bench/quality.py)."""

from __future__ import annotations

import pytest
from bench.quality import DEMO, Quality, Question, quality_of, questions_of
from tokenizers import Tokenizer

from gpu_backend.models.quantization import ScaleForm

TOKENS = Tokenizer.from_file(str(DEMO / "tokenizer.json"))


def both(questions: list[Question]) -> tuple[Quality, Quality]:
    """As the checkpoint is, and in fp8."""
    plain = quality_of(DEMO, None, TOKENS, questions, 1)
    return plain, quality_of(DEMO, ScaleForm.ROW, TOKENS, questions, 1)


def test_short_answers_are_as_right_as_before() -> None:
    questions = questions_of(TOKENS, 1)[:16]
    plain, rounded = both(questions)
    assert plain.right == len(questions)
    assert rounded.right >= 0.95 * plain.right
    assert rounded.perplexity != plain.perplexity  # it is another model
    assert rounded.perplexity == pytest.approx(plain.perplexity, rel=0.02)


@pytest.mark.slow
def test_all_kinds_of_answers_are_as_right_as_before() -> None:
    """And nearly all are the same to the last token; a story may go on otherwise."""
    questions = questions_of(TOKENS, 2)
    plain, rounded = both(questions)
    assert plain.right >= 0.95 * len(questions)
    assert rounded.right >= 0.95 * plain.right
    same = sum(a == b for a, b in zip(plain.answers, rounded.answers, strict=True))
    assert same >= 0.9 * len(questions)
    assert rounded.perplexity == pytest.approx(plain.perplexity, rel=0.01)
