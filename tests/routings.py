"""Experts that tokens choose: skewed, uniform, none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

NO_EXPERT = 0xFFFFFFFF
Choices = NDArray[np.uint32]  # [tokens][experts a token]


def uniform(tokens: int, n_experts: int, per_token: int) -> Choices:
    rng = np.random.default_rng(tokens)
    return np.array([rng.permutation(n_experts)[:per_token] for _ in range(tokens)], np.uint32)


def skewed(tokens: int, n_experts: int, per_token: int) -> Choices:
    """Every token chooses the same experts, the last among them."""
    return np.tile(np.arange(n_experts - per_token, n_experts, dtype=np.uint32), (tokens, 1))


def padded(tokens: int, n_experts: int, per_token: int) -> Choices:
    """Every third token is padding."""
    choice = uniform(tokens, n_experts, per_token)
    choice[1::3] = NO_EXPERT
    return choice


def absent(tokens: int, n_experts: int, per_token: int) -> Choices:
    return np.full((tokens, per_token), NO_EXPERT, np.uint32)
