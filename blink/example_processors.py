"""Examples of logits processors (docs/logits-processors.md):

blink serve MODEL --logits-processor blink.example_processors:no_repeat
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from blink.processors import changes_only_recent

Tokens = NDArray[np.int32]
Numbers = NDArray[np.float32]
Logit = float | np.float32

NEVER = np.float32(-np.inf)  # the logit of a token that is not to come
BITS = 0xFFFFFFFF
GREEN_SHARE, GREEN_BIAS = 0.5, 2.0  # of a watermark, where a request gives none


@changes_only_recent
def no_repeat(token: int, logit: Logit, position: int, recent: Tokens, args: Numbers) -> Logit:
    """A token that is among the last 32 does not come again. With args[0], its logit is lower by that
    instead.
    """
    lowered = logit - args[0] if args[0] > 0 else NEVER
    found = False
    for seen in recent[-32:]:
        found |= seen == token
    return lowered if found else logit


@changes_only_recent
def no_repeated_pair(token: int, logit: Logit, position: int, recent: Tokens, args: Numbers) -> Logit:
    """Two tokens that stand side by side among the last 64 do not stand so again."""
    found = False
    i = 1
    while i < len(recent):
        found |= (recent[i] == token) & (recent[i - 1] == recent[-1])
        i += 1
    return NEVER if found else logit


@njit  # type: ignore[untyped-decorator]
def is_green(previous: int, token: int, share: float) -> bool:
    """Whether a token is on the green list behind another one; so is this share of all tokens. Numba compiles
    it as a part of the processor; a detector calls it from Python.
    """
    mixed = (previous * 0x9E3779B1 + token * 0x85EBCA77) & BITS
    mixed = ((mixed ^ (mixed >> 15)) * 0x2C1B3C6D) & BITS
    mixed = ((mixed ^ (mixed >> 12)) * 0x297A2D39) & BITS
    return (mixed ^ (mixed >> 15)) < share * BITS


def watermark(token: int, logit: Logit, position: int, recent: Tokens, args: Numbers) -> Logit:
    """Tokens on the green list behind the last one become likelier (Kirchenbauer et al., "A Watermark for
    Large Language Models", 2023). args[0] is the list's share of all tokens, args[1] what is added.
    """
    share = args[0] if args[0] > 0 else GREEN_SHARE
    bias = args[1] if args[1] > 0 else GREEN_BIAS
    return logit + np.float32(bias) if is_green(recent[-1], token, share) else logit
