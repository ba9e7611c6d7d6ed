"""What a client is told of a request that the scheduler ended without an answer (R7)."""

from __future__ import annotations

from collections.abc import Callable

from nic_frontend.errors import ApiError, bad_request, context_length_exceeded, unavailable
from ringbuffer.abi import Reason

ANSWERED = (Reason.EOS, Reason.STOP_ID, Reason.LENGTH)  # for these, an answer ends

# Made anew each time: an exception that is raised again keeps the frames of every time that it was.
REASONS: dict[Reason, Callable[[], ApiError]] = {
    Reason.BAD_CHECKSUM: lambda: ApiError(
        502, "the request or its answer was damaged between the frontend and the scheduler"
    ),
    Reason.EMPTY_PROMPT: lambda: bad_request("the prompt has no tokens", "prompt"),
    Reason.PROMPT_TOO_LONG: lambda: context_length_exceeded(
        "the prompt leaves no room for an answer in the context or in the KV cache", "prompt"
    ),
    Reason.BAD_TOKEN: lambda: bad_request("the prompt has a token outside the model's vocabulary", "prompt"),
    Reason.BAD_PARAMETER: lambda: bad_request("a sampling parameter is outside its range"),
    Reason.BAD_RANGE: lambda: ApiError(500, "the frontend placed the request outside its part of the ring"),
    Reason.SHUTTING_DOWN: lambda: unavailable("the backend is shutting down"),
    Reason.ENGINE_FAULT: lambda: ApiError(500, "the engine failed"),
    Reason.NUMERICAL_FAULT: lambda: ApiError(
        500,
        "there was no token to sample: the model's logits were all NaN or -inf",
        code="numerical_fault",
    ),
    Reason.BAD_GRAMMAR: lambda: ApiError(
        500, "the backend has no room for this request's grammar, or the frontend compiled it wrongly"
    ),
    Reason.GRAMMAR_DEAD_END: lambda: bad_request(
        "the answer cannot go on as its grammar wants: no token of the model's vocabulary fits there",
        code="grammar_dead_end",
    ),
    Reason.CANCELLED: lambda: unavailable("the backend cancelled the request"),
}


def error_of(reason: int) -> ApiError:
    known = REASONS.get(Reason(reason)) if reason in Reason._value2member_map_ else None
    return (
        known() if known else ApiError(500, f"the backend ended the request for the unknown reason {reason}")
    )
