"""A request of Dynamo's frontend (its PreprocessedRequest), checked and put into the ring's terms.

Dynamo has applied the chat template and tokenized, and looks for stop strings itself: only token ids pass.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.fields import Neutral, check_tokens, refuse_unsupported
from nic_frontend.api.parameters import Limits, parse
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import Generation
from nic_frontend.request import Mailbox, Request
from nic_frontend.sampling_defaults import fill_in

PROMPT = "token_ids"
SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "seed", "n", "best_of",
)  # fmt: skip
STOPPING = ("max_tokens", "min_tokens", "ignore_eos")
STOP_IDS = ("stop_token_ids", "stop_token_ids_visible", "stop_token_ids_hidden")
UNSUPPORTED: Neutral = {
    "guided_decoding": (None,),
    "length_penalty": (None, 1.0),
    "logit_bias": (None, {}),
    "logprobs": (None,),
    "prompt_logprobs": (None,),
    "use_beam_search": (None, False),
}


def ring_requests(
    asked: Mapping[str, Any], limits: Limits, defaults: dict[str, Any], mailbox: Mailbox
) -> list[Request]:
    """One request for each choice, all with the same mailbox. `defaults` is the model's own sampling.

    Raises ApiError 400 for what is not served.
    """
    sampling = asked.get("sampling_options") or {}
    stopping = asked.get("stop_conditions") or {}
    refuse_unsupported({**sampling, **(asked.get("output_options") or {})}, UNSUPPORTED)
    body = {name: sampling.get(name) for name in SAMPLING} | {name: stopping.get(name) for name in STOPPING}
    stop_ids = {token for name in STOP_IDS for token in stopping.get(name) or ()}
    body["stop_token_ids"] = sorted(stop_ids)
    body["cache_salt"] = (asked.get("routing") or {}).get("cache_salt")
    fill_in(body, defaults)
    checked_body = checked(body, Generation)
    parameters = parse(
        checked_body, limits, max_tokens=checked_body.max_tokens, max_tokens_field="max_tokens"
    )
    prompt = _prompt(asked[PROMPT], limits)
    limits.check_choices(1, parameters.n, PROMPT)
    arrived = time.perf_counter()
    return [
        Request(i, prompt, parameters.sampling(len(prompt), i, limits, PROMPT), mailbox, arrived)
        for i in range(parameters.n)
    ]


def _prompt(tokens: Any, limits: Limits) -> NDArray[np.uint32]:
    """They come as a list, or packed as little-endian int32 (DYN_TOKEN_IDS_AS_BYTES)."""
    if isinstance(tokens, bytes | bytearray | memoryview):
        found = np.frombuffer(tokens, "<i4")
    else:
        found = np.array(tokens, np.int64)
    limits.max_answer(len(found), PROMPT)
    check_tokens(PROMPT, [int(found.min()), int(found.max())], limits.vocab_size)
    return found.astype(np.uint32)
