"""Grammars (grammar.h) as Python sees them: put together, taken apart, and walked slowly.

The walk is the definition that the kernels' (grammar_walk.h) is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringbuffer import grammar_abi as abi

HEADER_WORDS = abi.Grammar.itemsize // 4


class GrammarError(ValueError):
    """A block that is no grammar; the message says what is wrong with it."""


@dataclass(frozen=True)
class Grammar:
    """The arrays of grammar.h: `columns` uint8 [256], `returns` uint32 [n], `rows` uint32 [state, column]."""

    columns: NDArray[np.uint8]
    returns: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    start: int
    stack_bound: int

    def pack(self) -> bytes:
        """The block. Raises GrammarError if it would be none."""
        head = np.zeros((), abi.Grammar)
        n_states, n_columns = self.rows.shape
        head["magic"], head["start"], head["stack_bound"] = abi.GRAMMAR_MAGIC, self.start, self.stack_bound
        head["n_states"], head["n_columns"], head["n_returns"] = n_states, n_columns, len(self.returns)
        head["words"] = HEADER_WORDS + len(self.returns) + self.rows.size
        head["column_of_byte"] = self.columns
        block = head.tobytes() + self.returns.astype("<u4").tobytes() + self.rows.astype("<u4").tobytes()
        unpack(block)
        return block


def _require(holds: bool, wrong: str) -> None:
    if not holds:
        raise GrammarError(wrong)


def unpack(block: bytes) -> Grammar:
    """The grammar in `block`. Raises GrammarError: what the scheduler refuses, and why."""
    _require(len(block) >= abi.Grammar.itemsize, "the block is shorter than its header")
    head = np.frombuffer(block, abi.Grammar, count=1)[0]
    n_states, n_columns, n_returns = (int(head[name]) for name in ("n_states", "n_columns", "n_returns"))
    columns = head["column_of_byte"]
    start, stack_bound = int(head["start"]), int(head["stack_bound"])
    _require(int(head["magic"]) == abi.GRAMMAR_MAGIC, "the block does not begin as a grammar does")
    _require(int(head["reserved"]) == 0, "the reserved word is not 0")
    _require(2 <= n_states <= abi.GRAMMAR_MAX_STATES, f"{n_states} states")
    _require(2 <= n_columns <= 256, f"{n_columns} columns")
    _require(1 <= n_returns <= abi.GRAMMAR_MAX_RETURNS, f"{n_returns} returns")
    _require(1 <= start < n_states, f"it starts in state {start} of {n_states}")
    _require(stack_bound <= abi.GRAMMAR_MAX_STACK, f"a stack of {stack_bound} states")
    words = HEADER_WORDS + n_returns + n_states * n_columns
    _require(
        int(head["words"]) == words and len(block) == 4 * words, f"it has {len(block)} bytes, not {4 * words}"
    )
    _require(
        bool((columns >= 1).all() and (columns < n_columns).all()), "a byte's column is none of its moves"
    )
    body = np.frombuffer(block, "<u4", offset=abi.Grammar.itemsize)
    returns, rows = body[:n_returns], body[n_returns:].reshape(n_states, n_columns)
    moves = rows[:, 1:]
    state_words = abi.GRAMMAR_ACCEPTING | abi.GRAMMAR_ANY_PLAIN
    _require(bool((returns < n_states).all()), "a return is no state")
    _require(bool((moves & abi.GRAMMAR_NEXT_MASK < n_states).all()), "a move leads to no state")
    _require(bool((moves >> abi.GRAMMAR_CALL_SHIFT < n_returns).all()), "a call has no return")
    _require(not (rows[:, 0] & ~np.uint32(state_words)).any(), "a state's word has bits that mean nothing")
    _require(not rows[0].any(), "state 0 is not dead")
    return Grammar(columns, returns, rows, start, stack_bound)


class Walk:
    """Where an answer stands. `state` 0: it has died."""

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar
        self.state = grammar.start
        self.stack: list[int] = []

    def copy(self) -> Walk:
        other = Walk(self._grammar)
        other.state, other.stack = self.state, list(self.stack)
        return other

    def step(self, byte: int) -> bool:
        """False, and dead from then on, if the byte may not come here."""
        grammar = self._grammar
        column = int(grammar.columns[byte])
        while not (move := int(grammar.rows[self.state, column])) & abi.GRAMMAR_NEXT_MASK:
            if not self._accepting(self.state) or not self.stack:
                self.state, self.stack = 0, []
                return False
            self.state = self.stack.pop()
        call, room = move >> abi.GRAMMAR_CALL_SHIFT, move >> abi.GRAMMAR_ROOM_SHIFT & abi.GRAMMAR_MAX_ROOM
        if len(self.stack) + bool(call) + room > grammar.stack_bound:
            self.state, self.stack = 0, []
            return False
        if call:
            self.stack.append(int(grammar.returns[call]))
        self.state = move & abi.GRAMMAR_NEXT_MASK
        return True

    def step_all(self, text: bytes) -> bool:
        """False if it has died on the way."""
        return all(self.step(byte) for byte in text) and self.state != 0

    def may_end(self) -> bool:
        return all(self._accepting(state) for state in (self.state, *self.stack))

    def _accepting(self, state: int) -> bool:
        return bool(self._grammar.rows[state, 0] & abi.GRAMMAR_ACCEPTING)


def accepts(grammar: Grammar, text: bytes) -> bool:
    """Whether `text` is a whole answer."""
    walk = Walk(grammar)
    return walk.step_all(text) and walk.may_end()
