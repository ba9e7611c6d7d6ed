"""What a request has of its lease's heaps, in words: what extents.h says, in Python."""

from __future__ import annotations

from ringbuffer import abi


def mask_words(vocab_size: int) -> int:
    """Of a mask: a bit for each token."""
    return -(-vocab_size // 32)


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
