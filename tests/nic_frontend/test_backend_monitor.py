"""What the monitor does to open requests when the scheduler has ended, whatever the event loop did before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from samplings import plain_sampling

from nic_frontend.errors import ApiError
from nic_frontend.library import EVENT_FINISHED, EVENT_TOKENS, Health
from nic_frontend.observe.metrics import Metrics
from nic_frontend.ring.backend_monitor import BackendMonitor
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.request import Mailbox, Request
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.ring.ring_thread import RingThread
from nic_frontend.ring.slot_tracker import SlotTracker
from nic_frontend.ring.token_reader import EventRow, TokenReader
from nic_frontend.transport.base import Transport
from ringbuffer.abi import Phase, Reason

GRAMMAR = b"abcd" * 40


class StoppedReader:
    """The scheduler has stopped, and `batches` are in the reader's queue."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[EventRow], list[int]]] = []
        self.written: list[bytes] = []  # grammars

    def submit(self, slots: Any, descriptors: Any, prompts: Any) -> bool:
        descriptors["sequence"] = 1
        return True

    def cancel(self, slot: int, sequence: int) -> None:
        pass

    def drain(self) -> tuple[list[EventRow], list[int], bool]:
        events, tokens = self.batches.pop(0) if self.batches else ([], [])
        return events, tokens, bool(self.batches)

    def write_prompt_heap(self, offset: int, payload: bytes, room: int) -> None:
        self.written.append(payload)

    def health(self) -> Health:
        return Health(phase=Phase.STOPPED)


def monitor_of(transport: Transport, reader: StoppedReader, tracker: RequestTracker) -> BackendMonitor:
    """Without a lease, which none of these tests loses."""
    return BackendMonitor(
        transport,
        RingThread(),
        cast(TokenReader, reader),
        tracker,
        cast(Lease, None),
        1.0,
        lambda reason: None,
    )


async def request_in_a_slot(tracker: RequestTracker, grammar: bytes | None = None) -> Request:
    prompt = np.array([5], dtype=np.uint32)
    request = Request(0, prompt, plain_sampling(), Mailbox(100), 0.0, grammar)
    await tracker.submit([request])
    return request


async def stop_with_tokens_in_the_queue() -> None:
    reader = StoppedReader()
    tracker = RequestTracker(cast(TokenReader, reader), SlotTracker(4, 128, 64), Metrics(), 0.0)
    complete, half = await request_in_a_slot(tracker), await request_in_a_slot(tracker)
    reader.batches = [
        ([(complete.slot, 1, 1, EVENT_TOKENS, 0, 0, 0), (half.slot, 1, 1, EVENT_TOKENS, 0, 0, 0)], [11, 12]),
        ([(complete.slot, 1, 1, EVENT_FINISHED, Reason.LENGTH, 0, 0)], [13]),
    ]
    transport = cast(Transport, SimpleNamespace(is_outdated=lambda: False))
    monitor = monitor_of(transport, reader, tracker)
    looking = asyncio.create_task(monitor.run())
    await asyncio.sleep(0)
    looking.cancel()
    arrivals = await complete.mailbox.take()
    assert [(arrival.tokens, arrival.reason) for arrival in arrivals] == [([11], None), ([13], Reason.LENGTH)]
    with pytest.raises(ApiError, match="the scheduler is in phase STOPPED"):
        await half.mailbox.take()


@pytest.mark.parametrize(("emulated", "lives", "age_s", "down"), [
    (False, True, 3, True),
    (True, False, 3, True),
    (True, True, 3, False),
    (True, True, 11, True),
])  # fmt: skip
def test_a_busy_cpu_is_no_lost_backend(emulated: bool, lives: bool, age_s: int, down: bool) -> None:
    """Its heartbeat is that of threads, which may wait for a core."""
    health = Health(phase=Phase.SERVING, heartbeat_age_ns=age_s * 10**9, heartbeat_lost=1)
    told: list[str | None] = []
    tracker = SimpleNamespace(down=None, fail_all=lambda error: told.append(str(error)))
    transport = cast(Transport, SimpleNamespace(is_outdated=lambda: False, backend_lives=lambda: lives))
    reader = cast(TokenReader, SimpleNamespace(health=lambda: health))
    monitor = BackendMonitor(
        transport,
        RingThread(),
        reader,
        cast(RequestTracker, tracker),
        cast(Lease, None),
        1.0,
        told.append,
        emulated,
    )
    asyncio.run(monitor._look())
    assert bool(told) == (tracker.down is not None) == down


def test_answers_that_are_complete_are_delivered_before_streams_are_failed() -> None:
    asyncio.run(stop_with_tokens_in_the_queue())


async def lose_the_backend_while_one_waits() -> None:
    slots = SlotTracker(1, 128, 64)
    tracker = RequestTracker(cast(TokenReader, StoppedReader()), slots, Metrics(), 5.0)
    first = await request_in_a_slot(tracker)
    slots.releasing(first.slot)
    waiting = asyncio.create_task(request_in_a_slot(tracker))
    await asyncio.sleep(0.01)
    tracker.down = "the backend is lost"
    slots.free(first.slot)
    with pytest.raises(ApiError, match="the backend is lost"):
        await waiting
    assert slots.n_free == 1


def test_who_waited_for_a_slot_meanwhile_is_told_of_the_loss() -> None:
    asyncio.run(lose_the_backend_while_one_waits())


async def reconnect_while_one_submits() -> None:
    reader = StoppedReader()
    tracker = RequestTracker(cast(TokenReader, reader), SlotTracker(4, 512, 64), Metrics(), 0.0)
    transport = cast(Transport, SimpleNamespace(reconnect=lambda: None))
    monitor = monitor_of(transport, reader, tracker)
    submitting = asyncio.create_task(request_in_a_slot(tracker, GRAMMAR))
    await asyncio.sleep(0)  # it has a slot, and is due behind this
    await monitor._mend(Health(link_down=1))
    await submitting
    assert reader.written == [GRAMMAR]  # perhaps into the dead link
    tracker.down = None
    await request_in_a_slot(tracker, GRAMMAR)
    assert reader.written == [GRAMMAR] * 2


def test_a_grammar_that_was_written_into_a_dead_link_is_written_again() -> None:
    asyncio.run(reconnect_while_one_submits())


async def come_back_damaged(reason: Reason) -> int:
    """How often the grammar of two requests is written, the first of which ends with `reason`."""
    reader = StoppedReader()
    tracker = RequestTracker(cast(TokenReader, reader), SlotTracker(4, 512, 64), Metrics(), 0.0)
    first = await request_in_a_slot(tracker, GRAMMAR)
    reader.batches = [([(first.slot, 1, 0, EVENT_FINISHED, reason, 0, 0)], [])]
    tracker.on_readable()
    await request_in_a_slot(tracker, GRAMMAR)
    return len(reader.written)


def test_a_grammar_is_written_again_after_a_checksum_did_not_match() -> None:
    assert asyncio.run(come_back_damaged(Reason.BAD_CHECKSUM)) == 2
    assert asyncio.run(come_back_damaged(Reason.EOS)) == 1
