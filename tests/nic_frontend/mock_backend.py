"""A scheduler stand-in over a real ring, in a thread: grants leases, verifies checksums, honours cancel and
release, and answers with scripted tokens. Its faults are what the ring's readers must survive: torn records,
stale records, statuses that come in odd order.

It relies on x86-64's store order between numpy stores, as the tests' machines do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from mock_row import Row, control_words
from scripted_answers import Script, count_up, told

from nic_frontend.library import crc32c
from ringbuffer import abi
from ringbuffer.abi import Command, LeaseState, Phase, Reason, State
from ringbuffer.extents import output_words
from ringbuffer.region import Geometry, ModelFacts, Region, create, model_fingerprint, rounded_up
from ringbuffer.words import Status, output_record, pair_word

ANSWERED = State.PREFILL_PROCESSING, State.DECODE_PROCESSING


class MockBackend:
    """Heaps have room for a whole context of each slot where no size is given.

    `step_s` is the time between tokens, `look_s` that between two looks at the ring. `records` chooses where
    they go: "both", or "arena" with stale inline records. From the `device` "cpu" frontends expect no even
    heartbeat.

    `torn` announces each record a step before it is written. `jitter` publishes a lower count now and then.
    `held` says which rows get no token now, while others do.
    """

    def __init__(
        self,
        path: Path,
        model_dir: Path,
        *,
        n_slots: int = 64,
        n_leases: int = 1,
        max_context: int = 512,
        prompt_heap: int | None = None,
        output_heap: int | None = None,
        vocab_size: int = 600,
        eos: int = 1,
        script: Script = count_up,
        step_s: float = 0.001,
        look_s: float = 0.0005,
        max_grammar_words: int = 1 << 18,
        device: str = "mock",
        priorities: bool = False,
        processors: tuple[str, ...] = (),
    ) -> None:
        facts = ModelFacts(
            model_fingerprint(model_dir), "tiny", device, vocab_size, max_context, n_slots, 100, 16,
            max_grammar_words=max_grammar_words, priorities=priorities, eos_ids=(eos,), processors=processors,
        )  # fmt: skip
        whole = n_slots // n_leases * rounded_up(max_context, abi.PROMPT_GRANULE)
        self.geometry = Geometry(n_slots, n_leases, prompt_heap or whole, output_heap or whole)
        self.region: Region = create(path, self.geometry, facts)
        self.path = path
        self.eos = eos
        self.script = script
        self.step_s = step_s
        self.look_s = look_s
        self.tokens_per_step = 1
        self.cached_tokens: int | Callable[[Row], int] = 0  # of each prompt, that the prefix cache has
        self.records = "both"
        self.torn = False
        self.jitter = False
        self.held: Callable[[Row], bool] = lambda row: False
        self.frozen = threading.Event()  # no heartbeat, no progress: a scheduler that hangs
        self.stalled = threading.Event()  # a heartbeat, but no tokens
        self.awake = threading.Event()  # cleared while nobody asks: it beats, and leaves the core to others
        self.awake.set()
        self.refuse_leases = False
        self.longest_lease_s = abi.LONGEST_LEASE_NS / 1e9
        self.accepted: list[Row] = []
        self.commands: list[tuple[int, int, Command]] = []  # slot, sequence, command
        self.bad_checksums = 0
        self._rows = [Row(0) for _ in range(n_slots)]
        self._seen = self.region.requests.copy()
        self._epochs = [0] * n_leases
        self._lease_words = [0] * n_leases
        self._lease_times = [0.0] * n_leases
        self._granted = [False] * n_leases
        self._reclaim_now: set[int] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> MockBackend:
        self.set_phase(Phase.SERVING)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self.frozen.clear()
        self._thread.join()
        self.region.close()

    def set_phase(self, phase: Phase) -> None:
        self.region.header["phase"][0] = int(phase)

    def open_rows(self) -> int:
        return sum(row.state is not State.EMPTY for row in self._rows)

    def reclaim(self, lease: int) -> None:
        """Takes the lease back in the next turn, as the scheduler does when a lease is not refreshed."""
        self._reclaim_now.add(lease)

    def _reclaim(self, lease: int) -> None:
        self._reset_slots(lease)
        self._granted[lease] = False
        self.region.lease_acks["word"][lease] = pair_word(self._epochs[lease], LeaseState.RECLAIMED)

    # ---------------------------------------------------------------- the loop

    def _run(self) -> None:
        beat = 0
        next_step = time.perf_counter()
        while not self._stop.is_set():
            if self.frozen.is_set():
                time.sleep(0.01)
                continue
            beat += 1
            self.region.header["heartbeat"][0] = beat
            for lease in range(self.geometry.n_leases):
                self._observe_lease(lease)
            for slot in np.flatnonzero(self.region.requests != self._seen).tolist():
                self._observe_request(slot)
            now = time.perf_counter()
            if now >= next_step and not self.stalled.is_set():
                next_step = now + self.step_s
                for slot, row in enumerate(self._rows):
                    if row.state in ANSWERED and not self.held(row):
                        self._step(slot, row)
            if self.awake.wait(0.05):
                time.sleep(min(self.look_s, self.step_s))

    def _observe_lease(self, lease: int) -> None:
        word = int(self.region.leases["word"][lease])
        now = time.monotonic()
        if word != self._lease_words[lease]:
            self._lease_words[lease], self._lease_times[lease] = word, now
        epoch = word & 0xFFFFFFFF
        if epoch and epoch != self._epochs[lease] and not self.refuse_leases:
            self._epochs[lease] = epoch
            self._reset_slots(lease)
            self._granted[lease] = True
            self.region.lease_acks["word"][lease] = pair_word(epoch, LeaseState.GRANTED)
        elif self._granted[lease]:
            asked = max(int(self.region.leases["timeout_ns"][lease]), abi.LEASE_TIMEOUT_NS) / 1e9
            late = now - self._lease_times[lease] > min(asked, self.longest_lease_s)
            if late or not epoch or lease in self._reclaim_now:
                self._reclaim_now.discard(lease)
                self._reclaim(lease)

    def _reset_slots(self, lease: int) -> None:
        for slot in self.geometry.lease_slots(lease):
            self._seen[slot] = self.region.requests[slot]
            self._rows[slot] = Row(int(self._seen[slot]) & 0xFFFFFFFF)
            self._publish(slot)

    def _observe_request(self, slot: int) -> None:
        word = int(self.region.requests[slot])
        self._seen[slot] = word
        sequence, command, epoch = word & 0xFFFFFFFF, Command((word >> 32) & 0xFF), word >> 40
        lease = slot // self.geometry.slots_per_lease
        if not self._granted[lease] or epoch != self._epochs[lease] & abi.EPOCH_MASK:
            return
        self.commands.append((slot, sequence, command))
        row = self._rows[slot]
        if row.state is State.EMPTY and sequence == (row.sequence + 1) & 0xFFFFFFFF:
            row = self._rows[slot] = Row(sequence, State.PREFILL_PENDING)
            if command is Command.SUBMIT:
                self._admit(slot, row)
        if sequence != row.sequence:
            return
        if command in (Command.CANCEL, Command.RELEASE) and row.state not in (
            State.EMPTY,
            State.DECODE_COMPLETED,
        ):
            self._finish(slot, row, Reason.CANCELLED)
        if command is Command.RELEASE and row.state is State.DECODE_COMPLETED:
            row.state, row.reason, row.count = State.EMPTY, Reason.NONE, 0
            self._rows[slot] = Row(row.sequence)  # without the prompt, which may be long
            self._publish(slot)

    def _admit(self, slot: int, row: Row) -> None:
        descriptor = self.region.descriptors[slot].copy()
        lease, at = slot // self.geometry.slots_per_lease, int(descriptor["prompt_offset"])
        n_tokens, vocab_size = int(descriptor["prompt_tokens"]), int(self.region.header["vocab_size"][0])
        prompt = self.region.prompts[lease, at : at + n_tokens + control_words(descriptor, vocab_size)].copy()
        assert len(prompt) <= descriptor["prompt_room"] <= self.geometry.prompt_heap - at
        assert 0 < descriptor["output_room"] <= self.geometry.output_heap - descriptor["output_offset"]
        row.output = self.region.outputs[lease, int(descriptor["output_offset"]) :]
        told = int(descriptor["logprob_words"]), n_tokens * int(descriptor["prompt_logprob_words"])
        row.output = row.output[: output_words(int(descriptor["output_room"]), *told)]
        row.descriptor, row.prompt = descriptor, prompt[:n_tokens].tolist()
        row.controls = prompt[n_tokens:]
        row.grammar = self._grammar(lease, descriptor)
        covered = descriptor.tobytes()[: abi.Descriptor.fields["crc32c"][1]]
        whose = int(descriptor["sequence"]), int(descriptor["epoch"])
        assert whose == (row.sequence, self._epochs[lease])
        if crc32c(prompt.tobytes(), crc32c(covered)) != descriptor["crc32c"]:
            self.bad_checksums += 1
            self._finish(slot, row, Reason.BAD_CHECKSUM)
            return
        row.answer = self.answer(row)
        cached = self.cached_tokens if isinstance(self.cached_tokens, int) else self.cached_tokens(row)
        self.region.progress["prefix"][slot] = pair_word(row.sequence, cached)
        row.state = State.PREFILL_PROCESSING
        self._tell_prompt(row)
        self.accepted.append(row)
        self._publish(slot)

    def answer(self, row: Row) -> Iterator[int]:
        """What is said to a request. A grammar is kept in the row, and not walked."""
        return self.script(row.prompt)

    def _grammar(self, lease: int, descriptor: np.void) -> bytes:
        at, n_words = int(descriptor["grammar_offset"]), int(descriptor["grammar_words"])
        assert n_words <= self.geometry.prompt_heap - at
        words = self.region.prompts[lease, at : at + n_words].tobytes()
        assert not n_words or crc32c(words) == descriptor["grammar_crc32c"]
        return words

    def _step(self, slot: int, row: Row) -> None:
        assert row.answer is not None
        assert row.descriptor is not None
        row.steps += 1
        row.state = State.DECODE_PROCESSING
        for position, token in row.pending:
            self._write(slot, row, position, token)
        row.pending = []
        reason = Reason.NONE
        for _ in range(self.tokens_per_step):
            token = next(row.answer, self.eos)
            if self.torn:
                row.pending.append((row.count, token))
                self._spoil(slot, row, row.count)
            else:
                self._write(slot, row, row.count, token)
            row.count += 1
            reason = self._reason(row, token)
            if reason:
                break
        if self.jitter and row.count > 2 and row.steps % 3 == 0:
            lower = Status(row.sequence, row.state, Reason.NONE, row.count - 2)
            self.region.progress["status"][slot] = lower.pack()
        if reason:
            self._finish(slot, row, reason)
        else:
            self._publish(slot)

    def _reason(self, row: Row, token: int) -> Reason:
        d = row.descriptor
        assert d is not None
        if row.count >= d["min_tokens"]:
            if token in d["stop_ids"][: d["n_stop_ids"]].tolist():
                return Reason.STOP_ID
            if token == self.eos and not d["flags"] & abi.RequestFlags.IGNORE_EOS:
                return Reason.EOS
        return Reason.LENGTH if row.count >= min(d["max_tokens"], d["output_room"]) else Reason.NONE

    def _tell_prompt(self, row: Row) -> None:
        assert row.descriptor is not None
        each, room = int(row.descriptor["prompt_logprob_words"]), int(row.descriptor["output_room"])
        first = room * (1 + int(row.descriptor["logprob_words"]))
        for position, token in enumerate(row.prompt if each else ()):  # prompts may be very long
            row.output[first + each * position :][:each] = told(position, token, each)

    def _write(self, slot: int, row: Row, position: int, token: int) -> None:
        assert row.descriptor is not None
        each, room = int(row.descriptor["logprob_words"]), int(row.descriptor["output_room"])
        row.output[room + each * position :][:each] = told(position, token, each)
        record = output_record(token, position, row.sequence)
        row.output[position] = record
        if self.records == "both":
            self.region.progress["records"][slot, position % abi.INLINE_RECORDS] = record

    def _spoil(self, slot: int, row: Row, position: int) -> None:
        """A record that a reader must not take: of another request, or of another position."""
        other_request = output_record(599, position, row.sequence - 1)
        other_position = output_record(599, position + 7, row.sequence)
        stale = other_request if row.steps % 2 else other_position
        row.output[position] = stale
        self.region.progress["records"][slot, position % abi.INLINE_RECORDS] = stale

    def _finish(self, slot: int, row: Row, reason: Reason) -> None:
        row.state, row.reason = State.DECODE_COMPLETED, reason
        self._publish(slot)
        for position, token in row.pending:  # torn to the end: the last records follow their own announcement
            self._write(slot, row, position, token)
        row.pending = []

    def _publish(self, slot: int) -> None:
        row = self._rows[slot]
        self.region.progress["status"][slot] = Status(row.sequence, row.state, row.reason, row.count).pack()
