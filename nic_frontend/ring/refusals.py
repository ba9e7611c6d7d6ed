"""Why a request gets no slot, or no room in the ring's heaps, as the client is told."""

from __future__ import annotations

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.ring.shares import Need


def slots_full(wanted: int, total: int) -> ApiError:
    message = f"all {total} request slots are busy ({wanted} wanted); retry shortly"
    return ApiError(429, message, kind="rate_limit_error", code="rate_limit_exceeded")


def share_full() -> ApiError:
    message = "your open requests hold as much of this server as one client may; retry when one has ended"
    return ApiError(429, message, kind="rate_limit_error", code="rate_limit_exceeded")


def heaps_full(need: Need) -> ApiError:
    message = (
        f"the ring has no room now for prompts of {need.prompts} tokens and answers of {need.outputs}; "
        "retry shortly, or ask for fewer tokens"
    )
    return ApiError(429, message, kind="rate_limit_error", code="rate_limit_exceeded")


def too_large(need: Need, total: Need) -> ApiError:
    """Of one call, whoever else is there. Each choice alone was checked against the context."""
    return bad_request(
        f"the choices of this request have prompts of {need.prompts} tokens and answers of up to "
        f"{need.outputs} in all; this server holds {total.prompts} and {total.outputs}: ask for fewer "
        "choices or fewer tokens",
        code="invalid_value",
    )
