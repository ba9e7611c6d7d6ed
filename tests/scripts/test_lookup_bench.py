"""scripts/bench/lookups.py plays texts as a model would say them."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import lookups

from gpu_backend.speculation import parse_speculation

SAID = 1000


@pytest.fixture(scope="module")
def program(build_program: Callable[..., Path]) -> Path:
    return build_program("lookups-bench", [lookups.SOURCE], *lookups.FLAGS)


@pytest.mark.parametrize("config", lookups.CONFIGS)
def test_a_copy_takes_few_steps_and_a_text_of_new_words_one_for_each(program: Path, config: str) -> None:
    rng = random.Random(1)
    once = rng.sample(range(1 << 30), SAID)
    texts = [(once, once), (once[:8], once[8:])]
    (_, few, drafts, right), (tokens, steps, _, none) = lookups.played(
        program, parse_speculation(config), texts
    )
    assert (tokens, steps, none) == (SAID - 8, SAID - 8, 0)
    assert few < SAID / 5
    assert few + right == SAID
    assert right >= 0.9 * drafts
