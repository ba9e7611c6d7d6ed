"""Full collections of garbage: not while many requests are open, but some time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from nic_frontend.processes.full_collections import (
    CALM_S,
    DUE,
    EARLIEST_S,
    FEW,
    LATEST_S,
    ROUNDS,
    YOUNG,
    FullCollections,
)

MANY = FEW + 1


@pytest.fixture
def collections() -> Iterator[FullCollections]:
    found = FullCollections(0.0)
    yield found
    found.leave()


class Cycle:
    def __init__(self) -> None:
        self.itself = self


def old_cycle() -> weakref.ref[Cycle]:
    """Of garbage that only a full collection finds, and that has been there for so long that one is due."""
    cycle = Cycle()
    gc.collect(0)
    for _ in range(DUE + 1):
        gc.collect(1)
    return weakref.ref(cycle)


def test_garbage_is_kept_while_many_are_open_or_just_were(collections: FullCollections) -> None:
    found = old_cycle()
    collections.look(lambda: MANY, EARLIEST_S)
    collections.look(lambda: FEW, EARLIEST_S + CALM_S - 1)
    assert found() is not None
    collections.look(lambda: FEW, EARLIEST_S + CALM_S)
    assert found() is None


def test_it_is_not_kept_for_ever(collections: FullCollections) -> None:
    found = old_cycle()
    collections.look(lambda: MANY, LATEST_S - 1)
    assert found() is not None
    collections.look(lambda: MANY, LATEST_S)
    assert found() is None


def test_it_is_not_looked_for_all_the_time(collections: FullCollections) -> None:
    old_cycle()
    collections.look(lambda: 0, EARLIEST_S)
    found = old_cycle()
    collections.look(lambda: 0, 2 * EARLIEST_S - 1)
    assert found() is not None
    collections.look(lambda: 0, 2 * EARLIEST_S)
    assert found() is None


def test_what_requests_hold_makes_no_full_collection(collections: FullCollections) -> None:
    """Python's own rule makes several while so many objects come."""
    made: list[int] = []
    objects = YOUNG * (ROUNDS + 2)

    def count(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            made.append(info["generation"])

    gc.callbacks.append(count)
    try:
        held = [[i] for i in range(objects)]
    finally:
        gc.callbacks.remove(count)
    assert len(held) == objects
    assert 1 in made
    assert 2 not in made


def test_python_has_its_own_rule_again_behind_it() -> None:
    before = gc.get_threshold()
    FullCollections(0.0).leave()
    assert gc.get_threshold() == before
