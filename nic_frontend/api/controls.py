"""What a request changes of its logits: `logit_bias`, `allowed_token_ids`, `bad_words`, processors."""

from __future__ import annotations

from nic_frontend.api.fields import check_tokens
from nic_frontend.api.processors import processors_of
from nic_frontend.api.schema.generation import Generation
from nic_frontend.api.served import Served
from nic_frontend.errors import bad_request
from ringbuffer import abi
from ringbuffer.extents import NO_CONTROLS, Controls, controls


async def controls_of(request: Generation, served: Served) -> Controls:
    """Raises ApiError 400 for what is no token of this model's, or too much."""
    vocab_size, allowed = served.limits.vocab_size, request.allowed_token_ids or None
    processors = processors_of(request, served.limits.processors)
    if not (request.logit_bias or allowed or request.bad_words or processors):
        return NO_CONTROLS
    if allowed:
        check_tokens("allowed_token_ids", allowed, vocab_size)
    biases = _biases(request.logit_bias or {}, vocab_size)
    bans = await _bans(request.bad_words or [], served)
    return controls(vocab_size, allowed, biases, bans, processors)


def _biases(given: dict[str, float], vocab_size: int) -> dict[int, float]:
    biases: dict[int, float] = {}
    for name, bias in given.items():
        if not (name.isascii() and name.isdigit() and len(name) <= 10 and int(name) < vocab_size):
            raise bad_request(
                f"'logit_bias' has the key {name[:20]!r}, it must be the id of a token, from 0 to "
                f"{vocab_size - 1}",
                "logit_bias",
                "invalid_value",
            )
        biases[int(name)] = bias
    return biases


async def _bans(words: list[str], served: Served) -> list[list[int]]:
    """The tokens of each word, and those that it has behind a space where that is another token (as in
    vLLM).
    """
    plain = [word.lstrip() or word for word in words]
    texts = [text for word in plain for text in (word, f" {word}")]
    arrays = await served.tokenizer.encode(texts, special=False, param="bad_words")
    _check_bans(sum(map(len, arrays[::2])))  # before lists are made, which take long where there are so many
    encoded = [tokens.tolist() for tokens in arrays]
    bans = []
    for word, spaced in zip(encoded[::2], encoded[1::2], strict=True):
        bans += [word] if word else []
        if spaced and (not word or (spaced[0] != word[0] and len(spaced) == len(word))):
            bans.append(spaced)
    _check_bans(sum(map(len, bans)))
    return bans


def _check_bans(tokens: int) -> None:
    if tokens > abi.MAX_BAN_WORDS:
        raise bad_request(
            f"'bad_words' has {tokens} tokens in all, it may have {abi.MAX_BAN_WORDS}",
            "bad_words",
            "invalid_value",
        )
