"""The errors that clients are told."""

from __future__ import annotations

import pytest

from nic_frontend import errors
from ringbuffer.abi import Reason

FAILURES = [reason for reason in Reason if reason >= Reason.ERROR_FIRST]


@pytest.mark.parametrize("reason", FAILURES, ids=lambda reason: reason.name)
def test_every_failure_of_a_request_has_an_error_of_its_own(reason: Reason) -> None:
    """R7: a reason that the contract names is never told as unknown."""
    assert errors.of_reason(reason) is errors.REASONS[reason]


def test_a_reason_that_there_is_not_is_told_as_it_is() -> None:
    error = errors.of_reason(200)
    assert error.status == 500
    assert "unknown reason 200" in str(error)
