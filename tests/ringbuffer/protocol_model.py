"""The ring's protocol as a state machine: one slot, its lease, and both sides, which may stop at any step.

A state holds what each side knows and what lies in memory between them. Every store of a word is a step, so a
side that crashes at any step is a state after which that side does nothing more. The crashes:

- The frontend dies. Another takes its lease, once the lock is free, with the next epoch.
- The frontend stands still. Its lease is taken back; it goes on and writes with the old epoch until it
  notices.
- The backend dies. Another makes a new ring; what the frontend then writes goes to the old one.

A payload may arrive after the word that announces it, or never, and at any time later: also when its
frontend has died, when the lease has been granted again, and when the slot's sequence has come to be that of
the late payload. What a frontend has prepared but not announced is such a payload, too. One payload at a time
is late, and any may be.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeVar

from ringbuffer.abi import Command, LeaseState, State

MAX_SEQUENCE = 3
MAX_EPOCH = 3
MAX_RING = 1  # a backend that has died once

NONE, SUBMIT, CANCEL, RELEASE = Command.NONE, Command.SUBMIT, Command.CANCEL, Command.RELEASE
EMPTY, PENDING, COMPLETED = State.EMPTY, State.PREFILL_PENDING, State.DECODE_COMPLETED
RUNNING = State.PREFILL_PROCESSING  # stands for the other states of an admitted request, too


class Mode(Enum):
    """What the frontend believes."""

    DEAD = 0
    ATTACHING = 1
    IDLE = 2
    OPEN = 3  # submitted, not seen to end
    CANCELLED = 4  # CANCEL written, not seen to end
    RELEASED = 5  # RELEASE written, EMPTY not seen


@dataclass(frozen=True)
class Word:
    """A request word."""

    sequence: int = 0
    command: Command = NONE
    epoch: int = 0


@dataclass(frozen=True)
class Payload:
    """Descriptor and prompt of a sequence, and the epoch in which they were written. Sequence 0: torn."""

    sequence: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class World:
    # the frontend's
    mode: Mode = Mode.DEAD
    sequence: int = 0
    epoch: int = 0
    home: int = 0  # the ring that it has mapped
    # in memory, frontend to scheduler
    asked: int = 0  # the lease word's epoch
    word: Word = Word()
    payload: Payload = Payload()
    late: Payload = Payload()  # still on its way
    # in memory, scheduler to frontend
    ring: int = 0  # how often the backend has died
    status: tuple[int, State] = (0, EMPTY)
    granted: int = 0
    lease: LeaseState = LeaseState.FREE
    # the scheduler's
    seen: Word = Word()
    served: Payload = Payload()  # the last one that ran


def frontend_steps(w: World) -> Iterator[World]:
    """What a living frontend does next; it does nothing that it would not know to do."""
    sequence, state = w.status
    if w.mode is Mode.DEAD:  # another process takes the lock, and asks: Lease.ask
        if w.asked < MAX_EPOCH:
            asked = max(w.asked, w.granted) + 1
            yield replace(w, mode=Mode.ATTACHING, epoch=asked, asked=asked, home=w.ring)
        return
    if w.home != w.ring:  # its ring is another backend's by now: F11
        yield replace(w, mode=Mode.DEAD)
        return
    if w.mode is Mode.ATTACHING:
        if (w.granted, w.lease) == (w.epoch, LeaseState.GRANTED):
            yield replace(w, mode=Mode.IDLE, sequence=sequence)
    elif w.mode is Mode.IDLE and w.sequence < MAX_SEQUENCE:
        new, whole = w.sequence + 1, Payload(w.sequence + 1, w.epoch)
        yield replace(w, payload=whole) if w.payload != whole else w  # ... and it may die before the word
        yield replace(w, late=whole)  # ... or before the payload has arrived
        opened = replace(w, mode=Mode.OPEN, sequence=new, word=Word(new, SUBMIT, w.epoch))
        yield replace(opened, payload=whole)
        yield replace(opened, late=whole)  # overtaken: what was there before, or half of it, is still there
        yield opened  # lost
    elif w.mode in (Mode.OPEN, Mode.CANCELLED):
        if w.mode is Mode.OPEN:
            yield replace(w, mode=Mode.CANCELLED, word=Word(w.sequence, CANCEL, w.epoch))
        if (sequence == w.sequence and state is COMPLETED) or w.mode is Mode.CANCELLED:
            yield replace(w, mode=Mode.RELEASED, word=Word(w.sequence, RELEASE, w.epoch))
    elif w.mode is Mode.RELEASED and w.status == (w.sequence, EMPTY):
        yield replace(w, mode=Mode.IDLE)
    lost = w.mode is not Mode.ATTACHING and (w.granted, w.lease) != (w.epoch, LeaseState.GRANTED)
    if lost and w.asked < MAX_EPOCH:  # F4: it asks anew, and writes nothing more with the old epoch
        asked = max(w.asked, w.granted) + 1
        yield replace(w, mode=Mode.ATTACHING, epoch=asked, asked=asked)


def network_steps(w: World) -> Iterator[World]:
    if w.late.sequence:
        yield replace(w, payload=w.late, late=Payload())


def scheduler_steps(w: World) -> Iterator[World]:
    sequence, state = w.status
    if w.asked not in (0, w.granted):  # a new epoch in the lease word: the slot is emptied, then granted
        yield replace(emptied(w), granted=w.asked, lease=LeaseState.GRANTED)
        return
    if w.word != w.seen:
        yield observe(replace(w, seen=w.word))
    if state is PENDING and w.payload == Payload(sequence, w.granted):
        yield replace(w, status=(sequence, RUNNING), served=w.payload)
    if state is PENDING:
        yield replace(w, status=(sequence, COMPLETED))  # BAD_CHECKSUM, after a time in which it was not whole
    if state is RUNNING:
        yield replace(w, status=(sequence, COMPLETED))


def emptied(w: World) -> World:
    """reset_slots of kernels/scheduler/intake.h."""
    return replace(w, seen=w.word, status=(w.word.sequence, EMPTY))


def observe(w: World) -> World:
    """on_request_word of kernels/scheduler/intake.h, of the word in `seen`."""
    sequence, state = w.status
    new, command = w.seen.sequence, w.seen.command
    if w.lease is not LeaseState.GRANTED or w.seen.epoch != w.granted:
        return w
    fresh = state is EMPTY and new == sequence + 1
    if not fresh and new != sequence:
        return w
    if command == SUBMIT:
        return replace(w, status=(new, PENDING)) if fresh else w
    if command == RELEASE:
        return replace(w, status=(new, EMPTY))
    if command == CANCEL and (fresh or state not in (EMPTY, COMPLETED)):
        return replace(w, status=(new, COMPLETED))
    return w


def crashes(w: World) -> Iterator[World]:
    if w.mode is not Mode.DEAD:
        yield replace(w, mode=Mode.DEAD)
    if w.lease is LeaseState.GRANTED:  # its word stands still: its frontend has died, or stands still
        yield replace(emptied(w), lease=LeaseState.RECLAIMED)
    if w.ring < MAX_RING:
        yield World(mode=w.mode, sequence=w.sequence, epoch=w.epoch, home=w.home, ring=w.ring + 1)


def steps(w: World) -> list[World]:
    """Every step from here, of either side or of nobody; asserts what no step may do."""
    found = [*frontend_steps(w), *network_steps(w), *scheduler_steps(w), *crashes(w)]
    for after in found:
        check(w, after)
    return [forgotten(after) for after in found]


def forgotten(w: World) -> World:
    """Without payloads whose sequence has gone by: none comes back, so these are like torn ones, and there
    are far fewer states."""
    sequence, state = w.status
    oldest = sequence if state is PENDING else sequence + 1
    payload, late = (p if p.sequence >= oldest else Payload() for p in (w.payload, w.late))
    return replace(w, payload=payload, late=late)


def check(w: World, after: World) -> None:
    if after.ring != w.ring:
        return
    assert after.status[0] >= w.status[0], "a sequence went back"
    began = after.status[1] is RUNNING and w.status[1] is not RUNNING
    if began:
        assert after.served == Payload(after.status[0], after.granted), "what ran is not what was submitted"
        assert after.served.sequence > w.served.sequence, "a request ran twice"
        assert after.lease is LeaseState.GRANTED, "a request of nobody ran"
    written = after.word != w.word or after.payload != w.payload
    assert not written or w.home == w.ring, "a frontend of the ring before wrote to this one"


Node = TypeVar("Node", bound=Hashable)


def explore(start: Node, successors: Callable[[Node], list[Node]]) -> dict[Node, list[Node]]:
    """Every state that can be reached, with the states that follow it."""
    graph: dict[Node, list[Node]] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        if node not in graph:
            graph[node] = successors(node)
            queue.extend(graph[node])
    return graph


def can_reach(graph: dict[Node, list[Node]], goal: set[Node]) -> set[Node]:
    """The states from which one of `goal` can be reached."""
    before: dict[Node, list[Node]] = {node: [] for node in graph}
    for node, following in graph.items():
        for after in following:
            if after in before:
                before[after].append(node)
    reached, queue = set(goal), deque(goal)
    while queue:
        for node in before[queue.popleft()]:
            if node not in reached:
                reached.add(node)
                queue.append(node)
    return reached
