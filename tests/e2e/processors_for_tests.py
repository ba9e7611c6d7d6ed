"""Logits processors that only tests want."""

from __future__ import annotations

import numpy as np


def always(token, logit, position, recent, args):  # type: ignore[no-untyped-def]
    """The token args[0] is the likeliest, from position args[1] on."""
    return np.float32(100.0) if (token == args[0]) & (position >= args[1]) else logit


def loop(token, logit, position, recent, args):  # type: ignore[no-untyped-def]
    """Does not end for a request that gives 77."""
    while args[0] == 77:
        logit += np.float32(1)
    return logit
