"""Who is next of those that wait, and who has to leave when they are too many."""

from __future__ import annotations

from nic_frontend.compiling.turns import Turns


def test_clients_take_turns() -> None:
    turns = Turns[str](10)
    for client, thing in ((1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "y")):
        assert turns.add(client, thing) is None
    assert turns.first == "a"
    assert [turns.next() for _ in range(6)] == ["a", "x", "y", "b", "c", None]
    assert len(turns) == 0


def test_who_has_most_there_makes_room_for_others() -> None:
    turns = Turns[str](3)
    for thing in "abc":
        turns.add(1, thing)
    assert turns.add(1, "d") == "d"
    assert turns.add(2, "x") == "c"
    assert turns.add(3, "y") == "b"
    assert turns.add(4, "z") == "z"  # nobody has more than one
    assert [turns.next() for _ in range(4)] == ["a", "x", "y", None]


def test_what_waits_no_more_has_no_turn() -> None:
    turns = Turns[str](3)
    turns.add(1, "a")
    turns.add(2, "x")
    assert turns.remove(1, "a")
    assert not turns.remove(1, "a")
    assert [turns.next(), turns.next()] == ["x", None]
