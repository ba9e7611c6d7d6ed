"""The prefix cache with the emulated scheduler and the reference engine."""

from __future__ import annotations

from collections.abc import Callable

import prefix_cache_cases as cases
import pytest


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(cases.answers_are_those_of_a_server_without_it, marks=pytest.mark.slow),
        cases.a_conversation_finds_what_was_said,
        pytest.param(cases.a_burst_with_one_beginning_computes_it_once, marks=pytest.mark.slow),
        pytest.param(cases.pages_make_room_under_pressure, marks=pytest.mark.slow),
        pytest.param(cases.host_memory_has_what_the_device_forgot, marks=pytest.mark.slow),
    ],
)
def test_nothing_is_computed_twice(case: Callable[[str], None]) -> None:
    case("cpu")
