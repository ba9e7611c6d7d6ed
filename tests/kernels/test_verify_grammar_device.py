"""Grammars in verify steps (E27): each row is held to where its grammar stands behind the drafts before it,
and the next step finds the state from which it goes on, however many drafts were right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from constrained import (
    ENDS,
    EOS,
    PROMPT,
    ROWS,
    STOP,
    Constrained,
    ConstrainedStep,
    Rng,
    allowed,
    extend,
    grammars,
    random_vocabulary,
    walked,
)
from emulation import Emulate
from numpy.typing import NDArray
from reference_ops import Floats
from verify_rows import verify

from gpu_backend.abi import DEAD_END, GRAMMAR_STATES, MAX_DRAFTS, Emit

STEPS = 3
MOST_ANSWERED = 2 * GRAMMAR_STATES + 3  # so that the places of states are used again
CONTEXT = PROMPT + MOST_ANSWERED + STEPS * (MAX_DRAFTS + 1)


class VerifySteps(ConstrainedStep):
    """Steps one after the other. At first it is known where the answers stand without their last tokens."""

    def __init__(self, rows: list[Constrained], table: list[bytes]) -> None:
        sizes = {"max_context": CONTEXT, "total_pages": len(rows) * (CONTEXT // 16 + 1), "eos": (EOS,)}
        super().__init__(rows, table, len(rows), **sizes)
        self.rows, self.table = rows, table
        self.params["n_stop_ids"], self.params["stop_ids"][:, 0] = 1, STOP

    def begin(self, n_drafts: list[int]) -> None:
        """A step in which the last tokens of the rows' answers are drafts."""
        ends = [PROMPT + len(row.answer) for row in self.rows]
        for i, row in enumerate(self.rows):
            self.history[i, PROMPT : ends[i]] = row.answer
        verify(self, [(i, end - 1 - n, end) for i, (end, n) in enumerate(zip(ends, n_drafts, strict=True))])

    def sample_both(self, emulate: Emulate, logits: Floats, blocks: int) -> list[int]:
        """What kernel and reference sample, which leave the same histories and states."""
        before = self.history.copy(), self.grammar_states.copy()
        self.call("sample", logits.copy())
        reference = self.out_token.copy(), self.history.copy(), kept(self.grammar_states)
        self.history[:], self.grammar_states[:] = before
        self.out_token[:] = 0
        emulate("sample", self.step_set, self.tables, logits.copy(), len(logits), blocks)
        for ours, expected in zip(
            (self.out_token, self.history, kept(self.grammar_states)), reference, strict=True
        ):
            np.testing.assert_array_equal(ours, expected)
        return [int(token) for token in self.out_token]

    def allowed_sets(self) -> list[set[int]]:
        """What each row may sample, by a walk from the answer's begin."""
        found = []
        for i, position in zip(self.batch_sequence, self.token_position, strict=True):
            n = int(position) + 1 - PROMPT
            walk = walked(self.rows[i], self.table, n)
            ends = walk.may_end() and n >= int(self.params["min_tokens"][i])
            found.append(set(allowed(walk, self.table)).difference(ENDS).union(ENDS if ends else ()))
        return found


def kept(states: NDArray[Any]) -> NDArray[Any]:
    """Without what no stack reaches."""
    states = states.copy()
    states["stack"][np.arange(states["stack"].shape[-1]) >= states["depth"][..., None]] = 0
    return states


def guess(rows: list[Constrained], table: list[bytes], rng: Rng) -> list[int]:
    """Puts drafts behind the answers, which their grammars allow; of half of the rows, one is any token
    instead. Returns how many each row has."""
    known = [len(row.answer) for row in rows]
    extend(rows, table, [n + int(rng.integers(0, MAX_DRAFTS + 1)) for n in known], rng)
    n_drafts = [len(row.answer) - n for row, n in zip(rows, known, strict=True)]
    for row, n in zip(rows, n_drafts, strict=True):
        if n and rng.random() < 0.5:
            row.answer[-int(rng.integers(1, n + 1))] = int(rng.integers(len(table)))
    return n_drafts


def accept(row: Constrained, n_drafts: int, sampled: list[int]) -> int:
    """Puts what a step has found in the place of the drafts. Returns how many of these were right."""
    known, n = len(row.answer) - n_drafts, 0
    while n < n_drafts and row.answer[known + n] == sampled[n]:
        n += 1
    row.answer[known:] = [token for token in sampled[: n + 1] if token != DEAD_END]
    return n


@pytest.mark.parametrize(
    ("vocab", "blocks", "seed"),
    [
        *((40, 2, seed) for seed in range(2)),
        *(pytest.param(700, 4, seed, marks=pytest.mark.slow) for seed in range(2, 5)),
    ],
)
def test_steps_go_on_from_the_accepted_drafts(emulate: Emulate, vocab: int, blocks: int, seed: int) -> None:
    """A row behind a wrong draft may have no token that comes next, and its state is not gone on from."""
    rng = np.random.default_rng(seed)
    table = random_vocabulary(vocab, rng)
    every = grammars()[1:]
    rows = [Constrained(every[i]) for i in rng.permutation(len(every))[:ROWS]]
    extend(rows, table, rng.integers(1, MOST_ANSWERED, len(rows)).tolist(), rng)
    rows = [row for row in rows if row.answer]
    steps = VerifySteps(rows, table)
    steps.params["min_tokens"] = rng.choice([0, 10, 100], len(rows))
    right = drafts = dead = 0
    for _ in range(STEPS):
        n_drafts = guess(rows, table, rng)
        steps.begin(n_drafts)
        logits = rng.standard_normal((len(steps.batch_sequence), vocab)).astype(np.float32)
        checked = np.flatnonzero(steps.batch_emit == Emit.CHECKED)
        logits[checked, steps.history[steps.batch_sequence, steps.token_position + 1][checked]] = 9
        sampled = steps.sample_both(emulate, logits, blocks)
        for token, choices in zip(sampled, steps.allowed_sets(), strict=True):
            assert token in choices if choices else token == DEAD_END
        dead += sampled.count(DEAD_END)
        for i, row in enumerate(rows):
            first = int(np.flatnonzero(steps.batch_sequence == i)[0])
            right += accept(row, n_drafts[i], sampled[first : first + n_drafts[i] + 1])
        drafts += sum(n_drafts)
    assert max(len(row.answer) for row in rows) > 2 * GRAMMAR_STATES
    assert drafts / 4 < right < drafts
    assert dead > 0
