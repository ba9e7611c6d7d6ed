"""What a request has of its lease's heaps, in words: what extents.h says, in Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringbuffer import abi

WORD_BITS = 32
NO_BIASES: Mapping[int, float] = MappingProxyType({})
Words = NDArray[np.uint32]


def mask_words(vocab_size: int) -> int:
    """Of a mask: a bit for each token."""
    return -(-vocab_size // WORD_BITS)


def most_control_words(vocab_size: int) -> int:
    """Of the controls of one request."""
    processors = abi.MAX_ASKED_PROCESSORS * abi.PROCESSOR_WORDS
    return mask_words(vocab_size) + 2 * abi.MAX_BIASES + abi.MAX_BAN_WORDS + processors


def output_words(output_room: int, logprob_words: int, prompt_logprobs: int) -> int:
    """Of the range for the answer: a record and `logprob_words` for each of `output_room` tokens, and as many
    as are for the whole prompt.
    """
    return output_room * (1 + logprob_words) + prompt_logprobs


class Controls(NamedTuple):
    """What a request changes of its logits, as it stands behind the prompt, and what the descriptor says."""

    words: Words
    n_biases: int
    ban_words: int
    flags: int
    vocab_size: int = 0
    n_processors: int = 0


NO_CONTROLS = Controls(np.zeros(0, np.uint32), 0, 0, 0)


def controls(
    vocab_size: int,
    allowed: Sequence[int] | None = None,
    biases: Mapping[int, float] = NO_BIASES,
    bans: Sequence[Sequence[int]] = (),
    processors: Sequence[tuple[int, Sequence[float]]] = (),
) -> Controls:
    """`allowed` tokens, None for all; what is added to logits, by token; sequences of at least one token that
    the answer does not have; logits processors by their indices, with up to PROCESSOR_ARGS numbers each, of
    which those that are left out are 0. All tokens are in the vocabulary.
    """
    mask = np.zeros(0, np.uint32)
    if allowed is not None:
        bits = np.zeros(WORD_BITS * mask_words(vocab_size), np.uint8)
        bits[np.asarray(allowed, np.int64)] = 1
        mask = np.packbits(bits, bitorder="little").view("<u4")
    pairs = np.zeros((len(biases), 2), np.uint32)
    pairs[:, 0] = list(biases)
    pairs[:, 1] = np.array(list(biases.values()), np.float32).view(np.uint32)
    banned = [token for ban in bans for token in (*ban[:-1], ban[-1] | abi.BAN_END)]
    asked = np.zeros((len(processors), abi.PROCESSOR_WORDS), np.uint32)
    for words, (index, args) in zip(asked, processors, strict=True):
        words[0] = index
        words[1 : 1 + len(args)] = np.array(args, np.float32).view(np.uint32)
    words = np.concatenate([mask, pairs.ravel(), np.array(banned, np.uint32), asked.ravel()])
    flags = 0 if allowed is None else abi.RequestFlags.ALLOWS
    return Controls(words, len(biases), len(banned), flags, vocab_size, len(processors))


def left_by(controls: Controls, answered: Sequence[int]) -> NDArray[np.bool_]:
    """The tokens [vocab_size] that mask and bans leave behind the `answered` ones (kernels' controls.h)."""
    left = np.ones(controls.vocab_size, np.bool_)
    n_mask = mask_words(controls.vocab_size) if controls.flags & abi.RequestFlags.ALLOWS else 0
    if n_mask:
        bits = np.unpackbits(controls.words[:n_mask].view(np.uint8), bitorder="little")
        left = bits[: controls.vocab_size].astype(np.bool_)
    ban: list[int] = []
    bans = n_mask + 2 * controls.n_biases
    for word in controls.words[bans : bans + controls.ban_words].tolist():
        ban.append(word & ~abi.BAN_END)
        if word & abi.BAN_END:
            *before, last = ban
            if not before or list(answered[-len(before) :]) == before:
                left[last] = False
            ban = []
    return left


def logprobs(words: NDArray[np.uint64]) -> tuple[Words, NDArray[np.float32]]:
    """Words of log-probabilities: what stands in front, a rank or a token, and the log-probability."""
    halves = words.view("<u4").reshape(*words.shape, 2)
    return halves[..., 0], np.ascontiguousarray(halves[..., 1]).view(np.float32)
