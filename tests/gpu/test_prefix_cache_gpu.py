"""The prefix cache with the scheduler and the engine on the GPU."""

from __future__ import annotations

from collections.abc import Callable

import prefix_cache_cases as cases
import pytest


@pytest.mark.parametrize(
    "case",
    [
        cases.answers_are_those_of_a_server_without_it,
        cases.a_conversation_finds_what_was_said,
        cases.a_burst_with_one_beginning_computes_it_once,
        cases.pages_make_room_under_pressure,
        cases.host_memory_has_what_the_device_forgot,
    ],
)
def test_nothing_is_computed_twice(case: Callable[[str], None]) -> None:
    case("gpu")
