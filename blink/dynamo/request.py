"""A request of Dynamo's frontend (its PreprocessedRequest), checked and put into the ring's terms.

Dynamo has applied the chat template and tokenized, and looks for stop strings itself: only token ids pass.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api import contradictions
from nic_frontend.api.constraint import Blocks, Constraint, blocks_of, check_ends
from nic_frontend.api.controls import controls_of
from nic_frontend.api.fields import check_tokens, refuse
from nic_frontend.api.limits import Limits
from nic_frontend.api.parameters import parse
from nic_frontend.api.sampling_defaults import fill_in
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import Generation, Likeliest
from nic_frontend.api.schema.rows import Neutral, rows
from nic_frontend.api.served import Served
from nic_frontend.api.structure import content_of
from nic_frontend.parsing.answer_form import TEXT_ALONE, AnswerForm
from nic_frontend.parsing.registry import TAIL
from nic_frontend.ring.request import Mailbox, Request

PROMPT = "token_ids"
FORM = "guided_decoding"  # what an answer's form is called there
SAMPLING = (
    *(name for name, row in rows(Generation).items() if row.in_descriptor and name != "priority"),
    *("seed", "n", "best_of", "logit_bias", "allowed_token_ids", "bad_words"),
    *("logits_processors", "logits_processor_args"),
)
STOPPING = ("max_tokens", "min_tokens", "ignore_eos")
STOP_IDS = ("stop_token_ids", "stop_token_ids_visible", "stop_token_ids_hidden")
TOLD = ("logprobs", "prompt_logprobs")
UNSUPPORTED: Neutral = {
    "bad_words_token_ids": (None, []),
    "length_penalty": (None, 1.0),
    "logprob_token_ids": (None, []),
    "max_thinking_tokens": (None,),
    "use_beam_search": (None, False),
}


class Asked(Generation, kw_only=True):
    """The fields that have the same meaning as those of blink's own endpoints."""

    logprobs: Likeliest | None = None


async def ring_requests(
    asked: Mapping[str, Any], served: Served, defaults: dict[str, Any], mailbox: Mailbox
) -> list[Request]:
    """One request for each choice, all with the same mailbox. `defaults` is the model's own sampling.

    Raises ApiError: 400 for what is not served, 429 where too many grammars wait.
    """
    limits, sampling, stopping = served.limits, _sampling(asked), asked.get("stop_conditions") or {}
    refuse({**sampling, **stopping}, UNSUPPORTED)
    told = asked.get("output_options") or {}
    body = {name: sampling.get(name) for name in SAMPLING} | {name: stopping.get(name) for name in STOPPING}
    body |= {name: told.get(name) for name in TOLD}
    body["logit_bias"] = {str(token): bias for token, bias in (body["logit_bias"] or {}).items()}
    body["stop_token_ids"] = sorted({token for name in STOP_IDS for token in stopping.get(name) or ()})
    body["cache_salt"] = (asked.get("routing") or {}).get("cache_salt")
    body["structured_outputs"] = _form(sampling.get("guided_decoding"))
    fill_in(body, defaults)
    request = checked(body, Asked)
    parameters = parse(
        request,
        limits,
        max_tokens=request.max_tokens,
        max_tokens_field="max_tokens",
        logprobs=request.logprobs,
        prompt_logprobs=request.prompt_logprobs,
        controls=await controls_of(request, served),
    )
    prompt = _prompt(asked[PROMPT], limits)
    limits.check_choices(1, parameters.n, PROMPT)
    samplings = [parameters.of_choice(len(prompt), i, limits, PROMPT) for i in range(parameters.n)]
    blocks = await _blocks(request, prompt, bool(asked.get("require_reasoning")), served)
    check_ends(parameters.sampling, blocks)
    arrived = time.perf_counter()
    requests = [
        Request(i, prompt, one, mailbox, arrived, grammar=blocks.whole) for i, one in enumerate(samplings)
    ]
    contradictions.check(requests[0], FORM, served)
    return requests


def _sampling(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Dynamo puts what its own type has no field for beside it."""
    beside = asked.get("extra_args") or {}
    return {**(asked.get("sampling_options") or {}), **(beside.get("sampling_options") or {})}


def _form(guided: dict[str, Any] | None) -> dict[str, Any] | None:
    """Dynamo's guided decoding as `structured_outputs`. Which library enforces it means nothing here."""
    given = {name: value for name, value in (guided or {}).items() if value not in (None, [])}
    given.pop("backend", None)
    return given or None


async def _blocks(request: Generation, prompt: NDArray[np.uint32], thinks: bool, served: Served) -> Blocks:
    """`thinks`: Dynamo splits reasoning off, so the model may think before it keeps to the form."""
    constraint = Constraint(content_of(request))
    form: AnswerForm = TEXT_ALONE
    if constraint.content is not None and thinks:
        (end,) = await served.tokenizer.decode([prompt[-TAIL:].tolist()])
        form = served.forms.form(end, tools=False)
    return await blocks_of(constraint, form, served)


def _prompt(tokens: Any, limits: Limits) -> NDArray[np.uint32]:
    """They come as a list, or packed as little-endian int32 (DYN_TOKEN_IDS_AS_BYTES)."""
    if isinstance(tokens, bytes | bytearray | memoryview):
        found = np.frombuffer(tokens, "<i4")
    else:
        found = np.array(tokens, np.int64)
    limits.max_answer(len(found), PROMPT)
    check_tokens(PROMPT, [int(found.min()), int(found.max())], limits.vocab_size)
    return found.astype(np.uint32)
