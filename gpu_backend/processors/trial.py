"""A trial of a logits processor before anything is served: it ends, and reads nothing behind its arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from gpu_backend.abi import RECENT_TOKENS
from ringbuffer.abi import PROCESSOR_ARGS

TRIAL_S = 10.0

Call = tuple[Any, ...]


def problem(checked: Callable[..., Any], vocab_size: int, only_recent: bool = False) -> str | None:
    """What is wrong with the function, whose indices are checked; None if nothing was found. `only_recent`:
    it says that it changes only recent tokens' logits.

    One that does not end keeps its thread until the process ends.
    """
    found: list[str] = []

    def run() -> None:
        for call in _calls(vocab_size):
            wrong = None
            token, logit, position, recent, _ = call
            try:
                made = checked(*call)
                if made is None:
                    wrong = "it returns nothing"
                elif only_recent and token not in recent and made != logit:
                    wrong = f"it says that it changes only recent tokens, and returns {made:g}"
            except Exception as error:  # whatever somebody else's code raises
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                found.append(f"{wrong} for token {token}, logit {logit:g}, position {position}")
                return

    thread = threading.Thread(target=run, name="processor trial", daemon=True)
    thread.start()
    thread.join(TRIAL_S)
    if thread.is_alive():
        return f"it has not ended after {TRIAL_S:g} s, of which a call should take microseconds at most"
    return found[0] if found else None


def _calls(vocab_size: int) -> Iterator[Call]:
    """Arguments at the ends of their ranges, and some between."""
    rng = np.random.default_rng(0)
    none = np.full(RECENT_TOKENS, -1, np.int32)
    begun = none.copy()
    begun[-3:] = [0, vocab_size - 1, 0]
    full = rng.integers(0, vocab_size, RECENT_TOKENS).astype(np.int32)
    zeros, ones = np.zeros(PROCESSOR_ARGS, np.float32), np.ones(PROCESSOR_ARGS, np.float32)
    some = rng.normal(0, 10, PROCESSOR_ARGS).astype(np.float32)
    tokens = sorted({0, 1, vocab_size // 2, vocab_size - 1})
    logits = (0.0, -1e4, 30.5)
    for token, logit, position in product(tokens, logits, (0, 1, 100_000)):
        for recent, args in product((none, begun, full), (zeros, ones, some)):
            recent.flags.writeable = args.flags.writeable = False
            yield token, np.float32(logit), position, recent, args
