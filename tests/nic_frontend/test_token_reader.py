"""The native token reader against a ring that the test writes word by word, and against torn and stale
records.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from known_work import slowness
from limits import WAIT_S
from reader_bench import CAPACITY, N_SLOTS, Bench, Event
from waiting import wait_until

from nic_frontend.abi import EVENT_TOKENS_MAX
from nic_frontend.library import EVENT_FINISHED, EVENT_FREED, EVENT_TOKENS, crc32c
from nic_frontend.transport.base import TransportError
from ringbuffer import abi
from ringbuffer.abi import Command, LeaseState, Reason, State
from ringbuffer.words import output_record, pair_word

MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[MakeBench]:
    made: list[Bench] = []

    def make(**options: int) -> Bench:
        made.append(Bench(tmp_path / "ring", **options))
        return made[-1]

    yield make
    for bench in made:
        bench.close()


@pytest.fixture
def bench(make_bench: MakeBench) -> Bench:
    return make_bench()


@pytest.fixture
def patient_bench(make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Its reader waits for records that are torn until this process, too, has had a core."""
    monkeypatch.setattr(abi, "TORN_PAYLOAD_TIMEOUT_NS", int(1e9 * WAIT_S))
    return make_bench()


def test_submission_is_payload_then_word(bench: Bench) -> None:
    (sequence,) = bench.submit(3, prompt=(11, 12, 13, 14))
    assert bench.request(3) == (1, Command.SUBMIT)
    descriptor = bench.region.descriptors[3]
    assert (descriptor["sequence"], descriptor["epoch"]) == (sequence, bench.lease.epoch)
    assert (descriptor["prompt_tokens"], descriptor["ticket"]) == (4, 0)
    prompt = bench.prompt(3)[:4]
    assert prompt.tolist() == [11, 12, 13, 14]
    covered = descriptor.tobytes()[: abi.Descriptor.fields["crc32c"][1]] + prompt.astype("<u4").tobytes()
    assert descriptor["crc32c"] == crc32c(covered)
    assert bench.submit(4, 5) == [1, 1]
    assert bench.region.descriptors["ticket"][4:6].tolist() == [1, 2]


def test_life_of_a_slot(bench: Bench) -> None:
    (sequence,) = bench.submit(2)
    bench.status(2, sequence, State.PREFILL_PENDING, 0)
    bench.record(2, 100, 0, sequence)
    bench.status(2, sequence, State.DECODE_PROCESSING, 1)
    assert bench.take() == [(2, sequence, EVENT_TOKENS, 0, [100])]
    bench.record(2, 101, 1, sequence)
    bench.record(2, 102, 2, sequence)
    bench.status(2, sequence, State.DECODE_COMPLETED, 3, Reason.EOS)
    assert bench.take() == [(2, sequence, EVENT_FINISHED, Reason.EOS, [101, 102])]
    wait_for_command(bench, 2, Command.RELEASE)
    assert bench.take(0.05) == []  # not free before the scheduler says so
    bench.status(2, sequence, State.EMPTY, 0)
    assert bench.take() == [(2, sequence, EVENT_FREED, 0, [])]
    assert bench.submit(2) == [sequence + 1]


def wait_for_command(bench: Bench, slot: int, command: Command) -> None:
    wait_until(lambda: bench.request(slot)[1] is command, WAIT_S, str(command))


def test_the_arena_serves_what_the_inline_records_lost(bench: Bench) -> None:
    (sequence,) = bench.submit(0)
    for position in range(600):  # more than an event carries, and the inline records hold the last only
        bench.record(0, 1000 + position, position, sequence)
    bench.status(0, sequence, State.DECODE_COMPLETED, 600, Reason.LENGTH)
    found: list[Event] = []
    while not found or found[-1][2] != EVENT_FINISHED:
        found += bench.take()
    assert [token for event in found for token in event[4]] == list(range(1000, 1600))
    assert [event[2] for event in found][-1] == EVENT_FINISHED
    assert all(len(event[4]) <= EVENT_TOKENS_MAX for event in found)


def test_inline_records_suffice(bench: Bench) -> None:
    (sequence,) = bench.submit(0)
    for position in range(abi.INLINE_RECORDS):
        bench.record(0, 50 + position, position, sequence, where="inline")
    bench.status(0, sequence, State.DECODE_PROCESSING, abi.INLINE_RECORDS)
    assert bench.take() == [(0, sequence, EVENT_TOKENS, 0, list(range(50, 50 + abi.INLINE_RECORDS)))]
    assert bench.reader.health().arena_reads == 0


@pytest.mark.parametrize(
    ("token", "position", "sequence_step"),
    [(9, 1, 0), (9, 7, 0), (9, 0, -1), (9, 0, 1), (9, 0, 2048), (0, 0, -1)],
)
def test_a_record_of_anything_else_is_never_taken(
    patient_bench: Bench, token: int, position: int, sequence_step: int
) -> None:
    """F3."""
    (sequence,) = patient_bench.submit(1)
    wrong = output_record(token, position, sequence + sequence_step)
    patient_bench.output(1)[0] = wrong
    patient_bench.region.progress["records"][1, 0] = wrong
    patient_bench.status(1, sequence, State.DECODE_PROCESSING, 1)
    assert patient_bench.take(0.1) == []
    patient_bench.record(1, 77, 0, sequence)  # the write was only late
    assert patient_bench.take() == [(1, sequence, EVENT_TOKENS, 0, [77])]


def test_a_good_prefix_is_delivered_and_the_rest_follows(patient_bench: Bench) -> None:
    bench = patient_bench
    (sequence,) = bench.submit(1)
    for position in (0, 1, 3):
        bench.record(1, 60 + position, position, sequence, where="arena")
    bench.status(1, sequence, State.DECODE_COMPLETED, 4, Reason.LENGTH)
    assert bench.take() == [(1, sequence, EVENT_TOKENS, 0, [60, 61])]
    assert bench.request(1)[1] is Command.SUBMIT  # not released before everything was read
    bench.record(1, 62, 2, sequence, where="arena")
    assert bench.take() == [(1, sequence, EVENT_FINISHED, Reason.LENGTH, [62, 63])]


def test_a_status_of_another_sequence_is_ignored(bench: Bench) -> None:
    (sequence,) = bench.submit(6)
    bench.record(6, 5, 0, sequence - 1)
    bench.status(6, sequence - 1, State.DECODE_COMPLETED, 1, Reason.EOS)
    assert bench.take(0.05) == []
    assert bench.request(6)[1] is Command.SUBMIT


def test_a_count_that_goes_back_delivers_nothing_twice(bench: Bench) -> None:
    (sequence,) = bench.submit(6)
    for position in range(5):
        bench.record(6, position, position, sequence)
    bench.status(6, sequence, State.DECODE_PROCESSING, 5)
    assert bench.take()[0][4] == [0, 1, 2, 3, 4]
    bench.status(6, sequence, State.DECODE_PROCESSING, 2)
    assert bench.take(0.05) == []
    bench.record(6, 5, 5, sequence)
    bench.status(6, sequence, State.DECODE_PROCESSING, 6)
    assert bench.take() == [(6, sequence, EVENT_TOKENS, 0, [5])]


def test_the_cached_tokens_come_with_the_first_ones(bench: Bench) -> None:
    hit, miss = bench.submit(0, 1)
    bench.region.progress["prefix"][0] = pair_word(hit, 32)
    bench.region.progress["prefix"][1] = pair_word(miss - 1, 32)  # of the slot's request before
    for position in range(2):
        for slot, sequence in ((0, hit), (1, miss)):
            bench.record(slot, 5, position, sequence)
            bench.status(slot, sequence, State.DECODE_PROCESSING, position + 1)
        while sum(map(len, bench.cached.values())) < 2 * (position + 1):
            bench.take()
    assert bench.cached == {(0, hit): [32, 0], (1, miss): [0, 0]}


@pytest.mark.alone
def test_records_that_stay_unreadable_end_their_request_alone(
    make_bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F9."""
    monkeypatch.setattr(abi, "TORN_PAYLOAD_TIMEOUT_NS", 2_000_000_000)  # longer than this thread is paused
    bench = make_bench()
    broken, healthy = bench.submit(0, 1)
    bench.status(0, broken, State.DECODE_PROCESSING, 3)
    bench.record(1, 42, 0, healthy)
    bench.status(1, healthy, State.DECODE_PROCESSING, 1)
    began = time.monotonic()
    assert bench.take() == [(1, healthy, EVENT_TOKENS, 0, [42])]
    assert bench.take() == [(0, broken, EVENT_FINISHED, Reason.BAD_CHECKSUM, [])]
    assert time.monotonic() - began >= abi.TORN_PAYLOAD_TIMEOUT_NS / 1e9
    wait_for_command(bench, 0, Command.CANCEL)
    bench.status(0, broken, State.DECODE_COMPLETED, 3, Reason.CANCELLED)
    wait_for_command(bench, 0, Command.RELEASE)
    bench.status(0, broken, State.EMPTY, 0)
    assert bench.take() == [(0, broken, EVENT_FREED, 0, [])]


def test_a_count_beyond_the_arena_is_not_followed(bench: Bench) -> None:
    (sequence,) = bench.submit(0)
    bench.status(0, sequence, State.DECODE_PROCESSING, CAPACITY + 1)
    assert bench.take() == [(0, sequence, EVENT_FINISHED, Reason.BAD_CHECKSUM, [])]


def test_cancel_delivers_nothing_more(bench: Bench) -> None:
    """And a late cancel never overwrites the release (F2)."""
    (sequence,) = bench.submit(4)
    bench.status(4, sequence, State.PREFILL_PROCESSING, 0)
    bench.reader.cancel(4, sequence + 1)  # of another request: ignored
    bench.reader.cancel(4, sequence)
    wait_for_command(bench, 4, Command.CANCEL)
    bench.record(4, 5, 0, sequence)
    bench.status(4, sequence, State.DECODE_COMPLETED, 1, Reason.CANCELLED)
    wait_for_command(bench, 4, Command.RELEASE)
    assert bench.take(0.05) == []
    bench.reader.cancel(4, sequence)  # too late: the release must stand
    time.sleep(0.05)
    assert bench.request(4)[1] is Command.RELEASE
    bench.status(4, sequence, State.EMPTY, 0)
    assert bench.take() == [(4, sequence, EVENT_FREED, 0, [])]


def test_slots_belong_to_the_lease(make_bench: MakeBench) -> None:
    bench = make_bench(n_leases=4, lease=2)
    (sequence,) = bench.submit(1)
    assert bench.region.requests[2 * N_SLOTS + 1] != 0
    assert np.count_nonzero(bench.region.requests) == 1
    bench.record(1, 8, 0, sequence)
    bench.status(1, sequence, State.DECODE_PROCESSING, 1)
    assert bench.take() == [(1, sequence, EVENT_TOKENS, 0, [8])]


def test_sequences_go_on_from_the_ring_and_wrap(bench: Bench) -> None:
    last = 0xFFFFFFFF
    bench.region.requests[7] = last
    bench.status(7, last, State.EMPTY, 0)
    bench.reader.open()
    assert bench.submit(7) == [0]
    bench.record(7, 3, 0, 0)
    bench.status(7, 0, State.DECODE_PROCESSING, 1)
    assert bench.take() == [(7, 0, EVENT_TOKENS, 0, [3])]


def test_slots_that_the_scheduler_did_not_empty_are_refused(bench: Bench) -> None:
    bench.status(3, 5, State.DECODE_PROCESSING, 1)
    with pytest.raises(TransportError, match=r"with 1 slot\(s\) still in use"):
        bench.reader.open()


def test_a_lost_lease_stops_every_write(bench: Bench) -> None:
    """F4."""
    (sequence,) = bench.submit(0)
    bench.region.lease_acks["word"][0] = pair_word(bench.lease.epoch, LeaseState.RECLAIMED)
    wait_until(lambda: bench.reader.health().lease_lost)
    words = bench.region.requests.copy()
    beat = int(bench.region.leases["word"][0])
    bench.reader.cancel(0, sequence)
    bench.status(0, sequence, State.DECODE_COMPLETED, 0, Reason.CANCELLED)
    assert bench.take(0.1) == []
    descriptors = np.zeros(1, dtype=abi.Descriptor)
    prompt = np.zeros(1, dtype=np.uint32)
    assert not bench.reader.submit(np.array([1], dtype=np.uint32), descriptors, prompt)
    assert np.array_equal(bench.region.requests, words)
    assert int(bench.region.leases["word"][0]) == beat

    lost = bench.lease.epoch
    bench.status(0, sequence, State.EMPTY, 0)
    bench.lease.ask(1.0)
    bench.grant()
    bench.reader.open()
    assert bench.submit(0) == [sequence + 1]
    assert bench.region.descriptors["epoch"][0] == bench.lease.epoch == lost + 1  # R4


def test_a_full_queue_loses_nothing(bench: Bench) -> None:
    """Nobody drains while every slot fills its arena: the records wait in the ring (F5)."""
    rounds = {}
    for turn in range(4):
        for slot, sequence in enumerate(bench.submit(*range(N_SLOTS))):
            rounds[slot, sequence] = turn
            positions = np.arange(CAPACITY, dtype=np.uint64)
            tokens = positions + np.uint64(slot)
            high = (positions << np.uint64(32)) | np.uint64((sequence & 0xFFF) << 52)
            bench.output(slot)[:] = tokens | high
            bench.status(slot, sequence, State.DECODE_COMPLETED, CAPACITY, Reason.LENGTH)
        time.sleep(0.05)
        answers: dict[tuple[int, int], list[int]] = {}
        freed = 0
        while freed < N_SLOTS:
            for slot, sequence, kind, _, tokens in bench.take():
                answers.setdefault((slot, sequence), []).extend(tokens)
                freed += kind == EVENT_FREED
                if kind == EVENT_FINISHED:
                    bench.status(slot, sequence, State.EMPTY, 0)
        assert len(answers) == N_SLOTS
        for (slot, sequence), found in answers.items():
            assert rounds[slot, sequence] == turn
            assert found == list(range(slot, slot + CAPACITY))


@pytest.mark.alone
@pytest.mark.slow
def test_idle_costs_next_to_nothing(bench: Bench) -> None:
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.05 * slowness()
    bench.submit(0)  # waits long for its first token
    time.sleep(0.1)
    before = time.process_time()
    time.sleep(1.0)
    assert time.process_time() - before < 0.3 * slowness()
