"""Log-probabilities of an answer's tokens as Dynamo's workers tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nic_frontend.api.logprobs import TokenTexts, Words, numbers


def of_answer(texts: TokenTexts, tokens: Sequence[int], words: Words) -> dict[str, Any]:
    """The fields of a chunk: of each token its own, and an entry for it and for each of the likeliest. Where
    its rank is not known, it comes behind those.
    """
    log_probs, top_logprobs = [], []
    for token, (rank, own, likeliest) in zip(tokens, numbers(words), strict=True):
        ranked = {token: (rank or len(likeliest) + 1, own)} | {
            other: (place, logprob) for place, (other, logprob) in enumerate(likeliest, 1)
        }
        log_probs.append(own)
        top_logprobs.append([_entry(texts, other, *found) for other, found in ranked.items()])
    return {"log_probs": log_probs, "top_logprobs": top_logprobs}


def _entry(texts: TokenTexts, token: int, rank: int, logprob: float) -> dict[str, Any]:
    raw = texts.bytes_of(token)
    return {"rank": rank, "token_id": token, "token": texts(token), "logprob": logprob, "bytes": list(raw)}
