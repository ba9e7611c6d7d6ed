"""The ring's protocol, checked exhaustively: every interleaving of one slot, with every crash of either side,
and of two frontends that share the scheduler. protocol_model.py is the model, tied to the code at the end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import protocol_model as model
import pytest
from limits import PROGRAM_S
from protocol_model import (
    COMPLETED,
    EMPTY,
    MAX_EPOCH,
    PENDING,
    RUNNING,
    Mode,
    Word,
    World,
    can_reach,
    explore,
    steps,
)

from ringbuffer.abi import Command, LeaseState, State

Graph = dict[World, list[World]]


@cache
def graph() -> Graph:
    return explore(World(), steps)


def served(w: World) -> bool:
    return (w.granted, w.lease) == (w.epoch, LeaseState.GRANTED) and w.home == w.ring


def final(w: World) -> bool:
    """Nobody may ask for the lease again, by the bound on epochs alone."""
    return w.asked == MAX_EPOCH and not (w.mode is not Mode.DEAD and (served(w) or w.mode is Mode.ATTACHING))


def test_every_interleaving_with_every_crash_is_safe_and_the_slot_always_comes_back() -> None:
    """R3, R4, R6; `steps` asserts what may not happen on the way."""
    usable = {w for w in graph() if w.mode is Mode.IDLE and w.status == (w.sequence, EMPTY) and served(w)}
    assert len(graph()) > 10_000
    last = {w for w in graph() if final(w) or (w.asked == MAX_EPOCH and w.lease is LeaseState.RECLAIMED)}
    stuck = set(graph()) - can_reach(graph(), usable | last)
    assert not stuck, f"{len(stuck)} states never get the slot back, such as {next(iter(stuck))}"


def test_without_a_crash_every_state_leads_back_to_a_free_slot() -> None:
    quiet = explore(
        World(), lambda w: [*model.frontend_steps(w), *model.network_steps(w), *model.scheduler_steps(w)]
    )
    usable = {w for w in quiet if w.mode is Mode.IDLE and w.status == (w.sequence, EMPTY)}
    assert set(quiet) == can_reach(quiet, usable)


def test_a_request_that_is_not_cancelled_can_always_end() -> None:
    ended = {w for w in graph() if w.status == (w.sequence, COMPLETED) or w.mode is not Mode.OPEN}
    assert set(graph()) == can_reach(graph(), ended)


def test_cancel_and_completion_meet_in_every_order() -> None:
    """Whichever comes first, the slot is COMPLETED once, and the release empties it."""
    met = {(w.status[1], w.mode) for w in graph() if w.status[0] == w.sequence and served(w)}
    assert {(s, Mode.CANCELLED) for s in (PENDING, RUNNING, COMPLETED)} <= met
    for w in graph():
        if w.status[1] is COMPLETED and w.seen.command == Command.CANCEL and w.word == w.seen:
            later = [after for after in model.scheduler_steps(w) if after.status[1] is not COMPLETED]
            assert all(after.granted != w.granted for after in later), "a completed request went on"


def test_all_states_of_a_slot_and_of_a_lease_are_reached() -> None:
    assert {w.status[1] for w in graph()} == {EMPTY, PENDING, RUNNING, COMPLETED}
    assert {w.mode for w in graph()} == set(Mode)
    assert {w.lease for w in graph()} == set(LeaseState)
    assert {w.ring for w in graph()} == {0, model.MAX_RING}
    assert any(w.served.sequence == model.MAX_SEQUENCE for w in graph())
    unaware = [
        w for w in graph() if w.mode is Mode.OPEN and w.lease is LeaseState.RECLAIMED and w.word != w.seen
    ]
    assert unaware, "nobody writes after its lease was taken back"


def test_a_payload_of_an_earlier_epoch_is_passed_by_until_the_right_one_is_there() -> None:
    """R4: it has the sequence of the request that waits, and is whole."""
    stale = [w for w in graph() if w.status == (w.payload.sequence, PENDING) and w.payload.epoch < w.granted]
    right = {
        w: replace(w, payload=model.Payload(w.status[0], w.granted), late=model.Payload()) for w in stale
    }
    mended = [right[w] for w in stale if right[w] in graph()[w] and w.asked == w.granted]
    assert mended, "the right payload never comes after it"
    assert all(after.status[1] is not RUNNING for w in stale for after in graph()[w])
    assert all(any(after.status[1] is RUNNING for after in graph()[w]) for w in mended)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        ("observe_any_epoch", "observe"),
        ("serve_torn", "scheduler_steps"),
        ("serve_any_epoch", "scheduler_steps"),
        ("keep_running", "emptied"),
    ],
)
def test_the_model_finds_what_is_broken(monkeypatch: pytest.MonkeyPatch, broken: str, name: str) -> None:
    """Else it would prove nothing."""
    right = getattr(model, name)

    def observe_any_epoch(w: World) -> World:
        return replace(
            right(replace(w, granted=w.seen.epoch, lease=LeaseState.GRANTED)),
            granted=w.granted,
            lease=w.lease,
        )

    def serve_torn(w: World) -> Iterator[World]:
        yield from right(w)
        if w.status[1] is PENDING:
            yield replace(w, status=(w.status[0], RUNNING), served=w.payload)

    def serve_any_epoch(w: World) -> Iterator[World]:
        yield from right(w)
        if w.status == (w.payload.sequence, PENDING):
            yield replace(w, status=(w.status[0], RUNNING), served=w.payload)

    def keep_running(w: World) -> World:
        return replace(w, seen=w.word)

    monkeypatch.setattr(model, name, locals()[broken])
    with pytest.raises(AssertionError):
        explore(World(), steps)


# ---------------------------------------------------------------- two frontends


@dataclass(frozen=True)
class Pair:
    """Two slots of two leases, and a scheduler whose batch has one place."""

    first: World
    second: World


def pair_steps(pair: Pair, movers: tuple[str, ...] = ("first", "second")) -> list[Pair]:
    """`movers` are those whose frontends act; the scheduler acts for both."""
    found = []
    for name, other in (("first", pair.second), ("second", pair.first)):
        w = getattr(pair, name)
        after = list(model.scheduler_steps(w))
        if other.status[1] is RUNNING:
            after = [x for x in after if x.status[1] is not RUNNING or w.status[1] is RUNNING]
        if name in movers:
            after += [*model.frontend_steps(w), *model.network_steps(w)]
            after += [x for x in model.crashes(w) if x.ring == w.ring]
        for x in after:
            model.check(w, x)
        found += [replace(pair, **{name: model.forgotten(x)}) for x in after]
    return found


@pytest.mark.slow
def test_of_two_frontends_neither_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the first one stops, dead or standing still, the second gets its slot back by its own
    steps and those of the scheduler."""
    monkeypatch.setattr(model, "MAX_SEQUENCE", 1)
    monkeypatch.setattr(model, "MAX_EPOCH", 1)
    pairs = explore(Pair(World(), World()), pair_steps)
    alone = {pair: pair_steps(pair, ("second",)) for pair in pairs}
    back = {
        pair
        for pair in pairs
        if pair.second.status[1] in (EMPTY, COMPLETED)
        or pair.second.mode is Mode.DEAD
        or not served(pair.second)
    }
    stuck = set(pairs) - can_reach(alone, back)
    assert len(pairs) > 1000
    assert not stuck, f"{len(stuck)} states, such as {next(iter(stuck))}"


# ---------------------------------------------------------------- the code


Table = Callable[..., list[list[int]]]


@pytest.fixture(scope="module")
def transitions(build_program: Callable[..., Path]) -> Table:
    """What the scheduler's own source makes of each word in each state (simulator/transitions.cpp)."""
    program = build_program("transitions", ["tests/kernels/simulator/transitions.cpp"], "-O1")

    def table(*arguments: str) -> list[list[int]]:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PROGRAM_S)
        assert done.returncode == 0, done.stdout + done.stderr
        return [[int(number) for number in line.split()] for line in done.stdout.splitlines()]

    return table


def test_the_scheduler_makes_of_every_word_what_the_model_makes(transitions: Table) -> None:
    """on_request_word, for every state, lease, command, sequence and epoch."""
    cases = transitions()
    assert len(cases) == 4 * 2 * 6 * 5 * 2
    for state, lease, command, sequence, epoch, found_sequence, found_state in cases:
        w = World(status=(3, State(state)), granted=2, lease=LeaseState(lease))
        given = Word(sequence, Command(command) if command in list(Command) else Command.NONE, epoch)
        after = model.observe(replace(w, seen=given))
        assert after.status == (found_sequence, State(found_state)), (State(state), LeaseState(lease), given)


def test_the_scheduler_grants_and_reclaims_a_lease_as_the_model_does(transitions: Table) -> None:
    """observe_leases and reset_slots, for every state, lease, request word, epoch asked for, and silence."""
    cases = transitions("leases")
    assert len(cases) == 4 * 3 * 2 * 4 * 2
    for state, lease, sequence, asked, silent, *found in cases:
        w = World(
            status=(3, State(state)),
            granted=2,
            lease=LeaseState(lease),
            asked=asked,
            word=Word(sequence, Command.SUBMIT, 2),
        )
        granted = [after for after in model.scheduler_steps(w) if after.granted != w.granted]
        reclaimed = [after for after in model.crashes(w) if after.lease is LeaseState.RECLAIMED]
        if granted:
            (after,) = granted
        elif lease == LeaseState.GRANTED and (
            silent or not asked
        ):  # its holder has gone: nobody beats, or it gave the lease back
            (after,) = reclaimed
        else:
            after = w
        expected = [*after.status, after.granted, after.lease, after.seen == after.word]
        assert found == expected, (State(state), LeaseState(lease), sequence, asked, silent)
