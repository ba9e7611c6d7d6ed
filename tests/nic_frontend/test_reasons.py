"""What clients are told of requests that failed."""

from __future__ import annotations

import pytest

from nic_frontend.ring import reasons
from ringbuffer.abi import Reason

FAILURES = [reason for reason in Reason if reason >= Reason.ERROR_FIRST]


@pytest.mark.parametrize("reason", FAILURES, ids=lambda reason: reason.name)
def test_every_failure_of_a_request_has_an_error_of_its_own(reason: Reason) -> None:
    """R7: a reason that the contract names is never told as unknown."""
    error = reasons.error_of(reason)
    assert error.body == reasons.REASONS[reason]().body
    assert "unknown reason" not in str(error)


def test_a_failure_keeps_nothing_of_the_request_that_it_ended() -> None:
    """An exception that is raised twice would keep the frames of the first time, and what they hold."""
    first, second = (reasons.error_of(Reason.NUMERICAL_FAULT) for _ in range(2))
    assert first is not second


def test_a_reason_that_there_is_not_is_told_as_it_is() -> None:
    error = reasons.error_of(200)
    assert error.status == 500
    assert "unknown reason 200" in str(error)
