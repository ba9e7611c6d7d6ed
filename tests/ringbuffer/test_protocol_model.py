"""The ring's protocol, checked exhaustively: one slot, one lease, every interleaving.

A state holds what each side knows and what lies in memory between them; a payload may arrive after the
request word that announces it, a frontend may die at any moment and another may take its lease. Every state
that can be reached is visited. Safety (R3, R4, R6) is asserted on the way; progress is that from every state
the slot can be used again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

MAX_SEQUENCE = 3
MAX_EPOCH = 3


class Mode(Enum):
    """What the frontend believes."""

    ATTACHING = 0
    IDLE = 1
    OPEN = 2  # submitted, not seen to end
    CANCELLED = 3  # CANCEL written, not seen to end
    RELEASED = 4  # RELEASE written, EMPTY not seen


class Status(Enum):
    """What the scheduler publishes; PAUSED and the processing states are one here."""

    EMPTY = 0
    PENDING = 1
    RUNNING = 2
    COMPLETED = 3


@dataclass(frozen=True)
class World:
    # the frontend's
    mode: Mode = Mode.ATTACHING
    sequence: int = 0
    epoch: int = 1
    # in memory, frontend to scheduler
    word: tuple[int, str, int] = (0, "", 0)  # sequence, command, epoch
    payload: int = 0  # the sequence whose payload lies there whole
    late: int = 0  # the sequence of a payload still on its way
    # in memory, scheduler to frontend
    status: tuple[int, Status] = (0, Status.EMPTY)
    granted: int = 0
    # the scheduler's
    seen: tuple[int, str, int] = (0, "", 0)
    served: int = 0  # the last sequence that ran


def frontend_steps(w: World) -> Iterator[World]:
    sequence, state = w.status
    if w.mode is Mode.ATTACHING:
        if w.granted == w.epoch:
            yield replace(w, mode=Mode.IDLE, sequence=sequence)
    elif w.mode is Mode.IDLE and w.sequence < MAX_SEQUENCE:
        new = w.sequence + 1
        opened = replace(w, mode=Mode.OPEN, sequence=new, word=(new, "submit", w.epoch))
        yield replace(opened, payload=new)
        yield replace(opened, payload=-1, late=new)  # torn or overtaken
    elif w.mode in (Mode.OPEN, Mode.CANCELLED):
        if w.mode is Mode.OPEN:
            yield replace(w, mode=Mode.CANCELLED, word=(w.sequence, "cancel", w.epoch))
        if (sequence == w.sequence and state is Status.COMPLETED) or w.mode is Mode.CANCELLED:
            yield replace(w, mode=Mode.RELEASED, word=(w.sequence, "release", w.epoch))
    elif w.mode is Mode.RELEASED and w.status == (w.sequence, Status.EMPTY):
        yield replace(w, mode=Mode.IDLE)
    if w.epoch < MAX_EPOCH:  # it dies; its writes on the way are lost or land before the next grant
        yield replace(w, mode=Mode.ATTACHING, epoch=w.epoch + 1, late=0)


def network_steps(w: World) -> Iterator[World]:
    if w.late:
        yield replace(w, payload=w.late, late=0)


def scheduler_steps(w: World) -> Iterator[World]:
    sequence, state = w.status
    if w.granted != w.epoch:  # a new epoch in the lease word, or no beat: the slot is emptied, then granted
        yield replace(w, seen=w.word, status=(w.word[0], Status.EMPTY), granted=w.epoch)
        return
    if w.word != w.seen:
        yield observe(replace(w, seen=w.word))
    if state is Status.PENDING and w.payload == sequence:
        assert w.served < sequence, "a request ran twice"
        yield replace(w, status=(sequence, Status.RUNNING), served=sequence)
    if state is Status.PENDING and w.payload != sequence and not w.late:
        yield replace(w, status=(sequence, Status.COMPLETED))  # BAD_CHECKSUM after the timeout
    if state is Status.RUNNING:
        assert w.payload == sequence or w.late == 0, "served from a payload that was not whole"
        yield replace(w, status=(sequence, Status.COMPLETED))


def observe(w: World) -> World:
    """on_request_word of kernels/scheduler/intake.h."""
    sequence, state = w.status
    new, command, epoch = w.seen
    if epoch != w.granted:
        return w
    fresh = state is Status.EMPTY and new == sequence + 1
    if not fresh and new != sequence:
        return w
    if command == "submit":
        return replace(w, status=(new, Status.PENDING)) if fresh else w
    if command == "release":
        return replace(w, status=(new, Status.EMPTY))
    return (
        w
        if state is Status.COMPLETED or (state is Status.EMPTY and not fresh)
        else replace(w, status=(new, Status.COMPLETED))
    )


def successors(w: World) -> list[World]:
    found = [*frontend_steps(w), *network_steps(w), *scheduler_steps(w)]
    for after in found:
        assert after.status[0] >= w.status[0], "a sequence went back"
        running = after.status[1] is Status.RUNNING and w.status[1] is not Status.RUNNING
        assert not running or after.payload == after.status[0], "a torn payload was served"
    return found


def explore() -> dict[World, list[World]]:
    start, graph = World(), {}
    queue = deque([start])
    while queue:
        w = queue.popleft()
        if w in graph:
            continue
        graph[w] = successors(w)
        queue.extend(graph[w])
    return graph


def can_reach(graph: dict[World, list[World]], goal: set[World]) -> set[World]:
    before: dict[World, list[World]] = {w: [] for w in graph}
    for w, following in graph.items():
        for after in following:
            before[after].append(w)
    reached, queue = set(goal), deque(goal)
    while queue:
        for w in before[queue.popleft()]:
            if w not in reached:
                reached.add(w)
                queue.append(w)
    return reached


def test_every_interleaving_is_safe_and_the_slot_always_comes_back() -> None:
    graph = explore()
    assert len(graph) > 500
    usable = {w for w in graph if w.mode is Mode.IDLE and w.status == (w.sequence, Status.EMPTY)}
    stuck = set(graph) - can_reach(graph, usable)
    assert not stuck, f"{len(stuck)} states never get the slot back, such as {next(iter(stuck))}"


def test_a_request_that_is_not_cancelled_can_always_end() -> None:
    graph = explore()
    ended = {w for w in graph if w.status == (w.sequence, Status.COMPLETED) or w.mode is not Mode.OPEN}
    assert set(graph) == can_reach(graph, ended)


def test_all_states_of_a_slot_are_reached() -> None:
    graph = explore()
    assert {w.status[1] for w in graph} == set(Status)
    assert {w.mode for w in graph} == set(Mode)
    assert any(w.served == MAX_SEQUENCE for w in graph)
