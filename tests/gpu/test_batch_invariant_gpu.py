"""--batch-invariant: a row's logits have the same bits alone, beside others, and behind drafts."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from native_rig import make_limits, open_rig
from test_native_logits import VOCAB, prompt, save_model

from gpu_backend.cuda.driver import Device

LENGTHS = (40, 1, 130)  # of prompts: each is asked alone, beside others, and with drafts
STEPS = 20


@pytest.mark.parametrize("name", ["llama-decoder", "qwen3-moe"])
def test_logits_do_not_depend_on_the_rows_of_a_step(name: str, tmp_path: Path) -> None:
    """Each prompt is computed by itself, so all its sequences begin from the same keys and values."""
    device = Device()
    save_model(name, tmp_path)
    rig = open_rig(device, tmp_path, make_limits(max_drafts=5, batch_invariant=True))
    n = len(LENGTHS)
    for row in range(3 * n):
        rig.driver.start(row, prompt(LENGTHS[row % n]))
        rig.prefill([(row, 0, LENGTHS[row % n])])
    for _ in range(STEPS):
        for row in range(n):
            rig.decode([row])
    for _ in range(STEPS):
        rig.decode(range(n, 2 * n))
    while any(len(rig.driver.tokens[2 * n + row]) < len(rig.driver.tokens[row]) for row in range(n)):
        drafts = []
        for row in range(n):
            tokens, known = rig.driver.tokens[row], len(rig.driver.tokens[2 * n + row])
            guess = tokens[known : known + 5]
            if known % 3 == 0 and guess:
                guess[-1] = (guess[-1] + 1) % VOCAB
            if known < len(tokens):
                drafts.append((2 * n + row, guess[: len(tokens) - known - 1]))
        rig.verify(drafts)
    logits = defaultdict(dict)  # of a prompt and a position, by sequence
    for row, position, of_row, _ in rig.seen:
        logits[row % n, position][row] = of_row
    for alike in logits.values():
        first, *others = alike.values()
        assert len(others) == 2
        for other in others:
            np.testing.assert_array_equal(first, other)
    rig.close()
    device.close()
