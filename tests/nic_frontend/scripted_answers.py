"""What a mock backend says: tokens to a prompt, and words of log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from ringbuffer.words import pair_word

# The prompt's tokens to the answer's; its end is the model's end token.
Script = Callable[[list[int]], Iterator[int]]


def count_up(prompt: list[int]) -> Iterator[int]:
    """Token p at position p, modulo 256, for ever."""
    position = 0
    while True:
        yield 4 + position % 256
        position += 1


def say(tokens: list[int]) -> Script:
    return lambda prompt: iter(tokens)


def echo(prompt: list[int]) -> Iterator[int]:
    yield from prompt


def told(position: int, token: int, n: int) -> list[int]:
    """Words of log-probabilities of the token at a position: of rank 1, -0.25 for the first token, -0.5 for
    the second; the likeliest are it and the ids behind it, half as likely each as the one before.
    """
    own = -(1 + position) / 4
    logprobs = [own - math.log(2) * i for i in range(n - 1)]
    first = [1, *(token + i for i in range(n - 1))][:n]
    return [pair_word(a, bits_of(b)) for a, b in zip(first, [own, *logprobs][:n], strict=True)]


def bits_of(value: float) -> int:
    return int(np.float32(value).view(np.uint32))
