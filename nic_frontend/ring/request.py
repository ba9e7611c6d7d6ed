"""A request as the frontend tracks it: one choice of one HTTP request, in one slot."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.errors import ClientGone
from nic_frontend.ring.slot_tracker import Size
from ringbuffer import abi
from ringbuffer.extents import NO_CONTROLS, Controls

NO_SALT = (0, 0)
PATIENCE = 64  # tokens of a request, or arrivals, that wake a patient handler: some 50 us of work


@dataclass(frozen=True, slots=True)
class Sampling:
    """The part of a descriptor that the client decides (ring.h, blink_descriptor)."""

    max_tokens: int
    seed: int
    values: Mapping[str, Any]  # of the descriptor's fields that nobody on the way reads, by name
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_ids: tuple[int, ...] = ()
    salt: tuple[int, int] = NO_SALT  # two 64-bit words; equal ones share cached keys and values
    logprobs: int | None = None  # of the answer's tokens, and of so many of the likeliest in their places
    prompt_logprobs: int | None = None  # of the prompt's, likewise
    controls: Controls = field(default=NO_CONTROLS, compare=False)


def words_of(likeliest: int | None) -> int:
    """Words of log-probabilities for each token: its own, and those of so many of the likeliest."""
    return 0 if likeliest is None else 1 + likeliest


def words_from(halves: list[int], each: int) -> NDArray[np.uint64]:
    """[tokens][each] of words that came as halves."""
    return np.array(halves, np.uint32).view("<u8").reshape(-1, each)


@dataclass(slots=True)
class Arrival:
    """New tokens of one request; `reason` is None until the last of them."""

    request: Request
    tokens: list[int]
    reason: int | None
    logprobs: NDArray[np.uint64] | None = None  # [tokens][words] where they are wanted (ringbuffer/extents.h)


class Mailbox:
    """What has arrived for one HTTP request and was not sent yet: bounded, filled by the tracker, emptied by
    the handler (F6).
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._arrivals: list[Arrival] = []
        self._held_up = 0  # tokens that came since the last `take` while the client held the handler up
        self._failure: Exception | None = None
        self._nudged = False
        self._waiter: asyncio.Future[None] | None = None
        self.sending = (
            False  # the handler is in `send`: seen from outside only when the client holds it up there
        )
        self.abandoned = False
        self._handler: asyncio.Task[object] | None = asyncio.current_task()

    def put(self, arrival: Arrival) -> None:
        self._arrivals.append(arrival)
        if self.sending:
            self._held_up += len(arrival.tokens)
        self._wake()

    @property
    def overflowing(self) -> bool:
        """More came than allowed, because the client does not read and not because we are slow."""
        return self._held_up > self._limit

    def fail(self, failure: Exception) -> None:
        """The next `take` raises `failure`. Whatever arrived before is dropped."""
        if self._failure is None:
            self._failure = failure
            self._wake()

    def nudge(self) -> None:
        """The next `take` returns at once, also where nothing has arrived."""
        self._nudged = True
        self._wake()

    def abandon(self) -> None:
        """Ends the handler even where it is stuck: in `send`, because the client does not read."""
        self.abandoned = True
        self.fail(ClientGone())
        if self._handler is not None:
            self._handler.cancel()

    def give_up(self, failure: Exception) -> None:
        """Ends the handler with `failure`, or without a word where the client holds it up."""
        if self.sending:
            self.abandon()
        else:
            self.fail(failure)

    async def take(self) -> list[Arrival]:
        """Waits for arrivals, or a nudge, and returns all that there are. Raises what `fail` was given."""
        while not self._arrivals and self._failure is None and not self._nudged:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self.check()
        arrivals, self._arrivals, self._held_up = self._arrivals, [], 0
        self._nudged = False
        return arrivals

    def check(self) -> None:
        """Raises what `fail` was given."""
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class PatientMailbox(Mailbox):
    """Of a handler that wants answers whole: to wake it for each token costs several times what the token
    does. It is woken by the end of a request, and by so many tokens that they take a while.
    """

    def put(self, arrival: Arrival) -> None:
        last = self._arrivals[-1] if self._arrivals else None
        if last is not None and _continues(last, arrival):
            last.tokens += arrival.tokens
        else:
            last = arrival
            self._arrivals.append(arrival)
        waiting = max(len(last.tokens), len(self._arrivals))
        if waiting >= PATIENCE or arrival.reason is not None:
            self._wake()


def _continues(last: Arrival, arrival: Arrival) -> bool:
    """Whether both may be one arrival: nothing but tokens came, of the same request, and not too many for one
    turn of the loop (F10)."""
    same = arrival.request is last.request and len(last.tokens) < PATIENCE
    return same and arrival.reason is None and arrival.logprobs is None and last.logprobs is None


@dataclass(slots=True, eq=False)
class Request:
    """`prompt` is a uint32 array. Times are of time.perf_counter, in seconds."""

    index: int
    prompt: NDArray[np.uint32]
    sampling: Sampling
    mailbox: Mailbox
    arrived: float
    grammar: bytes | None = None  # what the answer may be (ringbuffer/grammar.h)
    client: int = 0  # for whom: clients take turns (S2)
    slot: int = -1
    sequence: int | None = None  # None until it was submitted
    tells_cached: bool = True  # the client may know how many of its prompt's tokens were cached
    cached_tokens: int = 0  # of the prompt; known with the first token
    prefill_s: float = 0.0  # from its admission to the batch until the first token
    n_tokens: int = 0
    first_token: float = 0.0
    last_token: float = 0.0
    ended: bool = field(default=False)
    answered: list[int] | None = None  # its tokens, where which may follow depends on them
    logprobs: list[int] = field(default_factory=list)  # halves of words, of the tokens that come next
    prompt_logprobs: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if len(self.sampling.controls.words):
            self.answered = []

    @property
    def told_cached_tokens(self) -> int:
        """What the client is told of `cached_tokens`."""
        return self.cached_tokens if self.tells_cached else 0

    @property
    def size(self) -> Size:
        s = self.sampling
        words = len(self.prompt) + len(s.controls.words)
        told = words_of(s.logprobs), words_of(s.prompt_logprobs) * len(self.prompt)
        return Size(words, s.max_tokens, self.grammar, *told)

    @property
    def payload(self) -> NDArray[np.uint32]:
        """The prompt, and the controls behind it."""
        controls = self.sampling.controls.words
        return np.concatenate([self.prompt, controls]) if len(controls) else self.prompt

    def count(self, n: int, now: float) -> None:
        """`n` tokens of the answer have arrived."""
        if not self.n_tokens:
            self.first_token = now
        self.n_tokens += n
        self.last_token = now

    def take_logprobs(self) -> NDArray[np.uint64] | None:
        """Those that came since the last time: [tokens][words]."""
        if self.sampling.logprobs is None:
            return None
        halves, self.logprobs = self.logprobs, []
        return words_from(halves, words_of(self.sampling.logprobs))

    @property
    def queue_s(self) -> float:
        """From its arrival until it was admitted to the batch; known with the first token."""
        return max(self.first_token - self.arrived - self.prefill_s, 0.0)

    @property
    def tpot_s(self) -> float:
        """Mean time per token after the first, of at least two."""
        return (self.last_token - self.first_token) / (self.n_tokens - 1)

    def descriptor(self) -> bytes:
        """An abi.Descriptor. The tracker fills in its ranges, the reader sequence, epoch, ticket and
        checksum.
        """
        s = self.sampling
        values = {
            "sequence": 0,
            "epoch": 0,
            "prompt_tokens": len(self.prompt),
            "max_tokens": s.max_tokens,
            "min_tokens": s.min_tokens,
            "seed": s.seed,
            "salt": s.salt,
            **s.values,
            "n_processors": s.controls.n_processors,
            "flags": s.controls.flags | (abi.RequestFlags.IGNORE_EOS if s.ignore_eos else 0),
            "ticket": 0,
            "client": self.client,
            "n_stop_ids": len(s.stop_ids),
            "stop_ids": s.stop_ids + (0,) * (abi.MAX_STOP_IDS - len(s.stop_ids)),
            "prompt_offset": 0,
            "prompt_room": 0,
            "output_offset": 0,
            "output_room": 0,
            "logprob_words": words_of(s.logprobs),
            "prompt_logprob_words": words_of(s.prompt_logprobs),
            "n_biases": s.controls.n_biases,
            "ban_words": s.controls.ban_words,
            "grammar_offset": 0,
            "grammar_words": 0,
            "grammar_name": 0,
            "grammar_crc32c": 0,
            "crc32c": 0,
        }
        row = tuple(values.pop(name) for name in abi.Descriptor.names or ())
        if values:
            raise KeyError(f"a descriptor has no {', '.join(values)}")
        return np.array(row, dtype=abi.Descriptor).tobytes()
