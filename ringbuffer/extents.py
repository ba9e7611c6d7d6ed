"""What a request has of its lease's heaps, in words: what extents.h says, in Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi

WORD_BITS = 32
Words = NDArray[np.uint32]


def mask_words(vocab_size: int) -> int:
    """Of a mask: a bit for each token."""
    return -(-vocab_size // WORD_BITS)


def most_control_words(vocab_size: int) -> int:
    """Of the controls of one request."""
    return mask_words(vocab_size) + 2 * abi.MAX_BIASES + abi.MAX_BAN_WORDS


def output_words(
    output_room: int, prompt_tokens: int, logprob_words: int = 0, prompt_logprob_words: int = 0
) -> int:
    """Of the range for the answer: a record and `logprob_words` for each of `output_room` tokens, and what is
    told of the prompt.
    """
    return output_room * (1 + logprob_words) + prompt_tokens * prompt_logprob_words


@dataclass(frozen=True)
class Controls:
    """What a request changes of its logits. All tokens are in the vocabulary, and no banned sequence is empty."""

    allowed: Sequence[int] | None = None  # None: all tokens
    biases: dict[int, float] = field(default_factory=dict)  # of tokens
    bans: Sequence[Sequence[int]] = ()  # tokens

    @property
    def counts(self) -> tuple[int, int]:
        """The descriptor's n_biases and ban_words."""
        return len(self.biases), sum(map(len, self.bans))

    def words(self, vocab_size: int) -> Words:
        """As they stand behind the prompt."""
        mask = np.zeros(0, np.uint32)
        if self.allowed is not None:
            bits = np.zeros(WORD_BITS * mask_words(vocab_size), np.uint8)
            bits[np.asarray(self.allowed, np.int64)] = 1
            mask = np.packbits(bits, bitorder="little").view("<u4")
        biases = np.zeros((len(self.biases), 2), np.uint32)
        biases[:, 0] = list(self.biases)
        biases[:, 1] = np.array(list(self.biases.values()), np.float32).view(np.uint32)
        bans = [token for ban in self.bans for token in (*ban[:-1], ban[-1] | abi.BAN_END)]
        return np.concatenate([mask, biases.ravel(), np.array(bans, np.uint32)])


def logprobs(words: NDArray[np.uint64]) -> tuple[Words, NDArray[np.float32]]:
    """Words of log-probabilities: what stands in front, a rank or a token, and the log-probability."""
    halves = words.view("<u4").reshape(*words.shape, 2)
    return halves[..., 0], np.ascontiguousarray(halves[..., 1]).view(np.float32)
