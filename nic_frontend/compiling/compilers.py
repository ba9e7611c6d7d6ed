"""A few processes that compile grammars, and what waits for them.

Each source is first given a short slice of a processor's time. What takes longer waits again at the next
level, where slices are longer, until it has been given as much as a grammar may take. The first process keeps
to short slices: somebody's small grammar never waits for long ones, however many large ones there are. Only
while no other process can be started it works at everything. At each level clients take turns. Where nobody
waits, the shortest slice is left out: most schemas need the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass, field

from nic_frontend.compiling.protocol import GRACE_S, MOST_TOLD, SLICES_S, Answer, Outcome
from nic_frontend.compiling.turns import Turns
from nic_frontend.compiling.watcher import GrammarWatcher
from nic_frontend.compiling.worker import Worker

log = logging.getLogger(__name__)

PROCESSES = 2
MOST_WAITING = (256, 128, 48, 16)  # at each level
SHORT_LEVELS = 2  # whose slices the first process works at
RETRY_S = 1.0  # until a process is tried again that does not start, and twice as long each time after that,
MOST_RETRY_S = 60.0  # and no longer than this
ABANDONED_S = 0.1  # a process that would work longer than this for a client that has left is ended
TRIES = PROCESSES + 1  # of a source whose process was ended by somebody else, and maybe all of them at once


class TooManyWait(Exception):
    """A source has no place among those that wait."""


class NoCompilers(Exception):
    """The processes cannot be started, or are ended again and again."""


@dataclass(eq=False)
class Job:
    """`spent_s`: what it has taken of a processor so far."""

    source: bytes
    client: int
    spent_s: float = 0.0
    level: int = 0
    tries: int = 0
    since: float = 0.0  # when it came to its level
    answer: asyncio.Future[Answer] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Compilers:
    """Lives on the event loop. The processes start with the first source, or with `start`; `close` them.
    One that does not start is tried again later. Where none does, all that wait fail, and the next source
    tries at once.
    """

    def __init__(self, first_frame: bytes, max_words: int, watcher: GrammarWatcher) -> None:
        self._watcher = watcher
        self._first_frame = first_frame
        self._max_words = max_words
        self._levels = [Turns[Job](most) for most in MOST_WAITING]
        self._workers: list[Worker | None] = [None] * PROCESSES
        self._jobs: list[Job | None] = [None] * PROCESSES  # what each works at
        self._failures = [0] * PROCESSES  # to start, one behind the other
        self._retries: list[asyncio.TimerHandle | None] = [None] * PROCESSES
        self._background: set[asyncio.Future[None]] = set()
        self._closed: Exception | None = None

    def start(self) -> None:
        for place in range(PROCESSES):
            if self._workers[place] is None and (self._retries[place] is None or not any(self._workers)):
                self._start(place)

    async def compile(self, job: Job) -> Answer:
        """The block, or why it is refused. Raises TooManyWait, NoCompilers and what `fail_all` was given."""
        if self._closed is not None:
            raise self._closed
        self._wait(job)
        self.start()
        self._dispatch()
        try:
            return await job.answer
        finally:
            self._leave(job)

    def fail_all(self, error: Exception) -> None:
        """All that wait fail, and so will all that come."""
        self._closed = error
        self._fail_waiting(error)
        for job in self._jobs:
            if job is not None:
                _fail(job, error)

    def close(self) -> None:
        """The loop may have ended before."""
        for retry in self._retries:
            if retry is not None:
                retry.cancel()
        for worker in self._workers:
            if worker is not None:
                worker.close()

    # ---------------------------------------------------------------- what waits

    def _wait(self, job: Job) -> None:
        job.since = time.monotonic()
        lost = self._levels[job.level].add(job.client, job)
        if lost is not None:
            _fail(lost, TooManyWait())

    def _leave(self, job: Job) -> None:
        """Nobody waits for it any more."""
        if self._levels[job.level].remove(job.client, job) or job not in self._jobs:
            return
        job.spent_s += SLICES_S[job.level]
        if SLICES_S[job.level] > ABANDONED_S:
            self._replace(self._jobs.index(job))

    def _fail_waiting(self, error: Exception) -> None:
        for level in self._levels:
            while (job := level.next()) is not None:
                _fail(job, error)

    # ---------------------------------------------------------------- who works

    def _dispatch(self) -> None:
        for place, worker in enumerate(self._workers):
            if worker is None or not worker.is_ready or self._jobs[place] is not None:
                continue
            if (job := self._next(place)) is not None:
                if not any(self._levels):
                    job.level = max(job.level, 1)
                self._jobs[place] = job
                worker.work(job.level, job.source)

    def _next(self, place: int) -> Job | None:
        levels = self._levels[:SHORT_LEVELS]
        if place > 0 or all(self._failures[1:]):  # whatever has waited for longest: nothing waits for ever
            levels = sorted(self._levels, key=_since)
        return next((job for level in levels if (job := level.next()) is not None), None)

    def _start(self, place: int) -> None:
        if (retry := self._retries[place]) is not None:
            retry.cancel()
            self._retries[place] = None
        worker = self._workers[place] = Worker(self._first_frame, self._max_words)
        worker.on_ready = lambda: self._on_ready(place)
        worker.on_answer = lambda answer: self._on_answer(place, answer)
        worker.on_end = lambda why, to_blame: self._on_end(place, why, to_blame)
        self._keep(asyncio.ensure_future(self._started(place, worker)))

    async def _started(self, place: int, worker: Worker) -> None:
        try:
            await worker.start()
        except (OSError, RuntimeError) as error:  # RuntimeError: of a thread that does not start
            log.error("cannot start a process that compiles grammars: %s", error)
            if self._workers[place] is worker:
                self._do_without(place)

    def _do_without(self, place: int) -> None:
        """For a while: a process that does not even start would be started for ever."""
        self._workers[place] = None
        after_s = min(RETRY_S * 2 ** self._failures[place], MOST_RETRY_S)
        self._failures[place] = min(self._failures[place] + 1, 16)
        self._retries[place] = asyncio.get_running_loop().call_later(after_s, self._start, place)
        if not any(self._workers):
            self._fail_waiting(NoCompilers())
        self._dispatch()

    def _on_ready(self, place: int) -> None:
        self._failures[place] = 0
        self._dispatch()

    def _replace(self, place: int) -> None:
        """Another process in the place of one that is of no use any more."""
        worker = self._workers[place]
        assert worker is not None
        self._jobs[place] = None
        worker.kill()
        self._watcher.on_grammar_process_restart()
        self._keep(asyncio.get_running_loop().run_in_executor(None, worker.wait))
        self._start(place)

    def _keep(self, work: asyncio.Future[None]) -> None:
        self._background.add(work)
        work.add_done_callback(self._background.discard)

    def _on_answer(self, place: int, answer: Answer) -> None:
        job, self._jobs[place] = self._jobs[place], None
        if answer.is_last:
            self._replace(place)
        if answer.outcome == Outcome.FAILED:
            answer = _logged(answer)
        if job is not None:
            job.spent_s += answer.spent_s
            if answer.outcome != Outcome.NOT_YET or job.level + 1 >= len(self._levels):
                _finish(job, answer)
            elif not job.answer.done():
                job.level += 1
                self._wait(job)
        self._dispatch()

    def _on_end(self, place: int, why: str, to_blame: bool) -> None:
        job, worker = self._jobs[place], self._workers[place]
        if job is None and worker is not None and not worker.was_ready:
            log.error("a process that compiles grammars does not start: %s", why)
            self._do_without(place)
            return
        log.warning("a process that compiles grammars was given up: %s", why)
        self._replace(place)
        if job is not None:
            job.tries += 1
            job.spent_s += SLICES_S[job.level] + GRACE_S
            if to_blame:
                _finish(job, Answer(Outcome.REFUSED, 0.0, why.encode()))
            elif job.tries >= TRIES:
                _fail(job, NoCompilers())
            elif not job.answer.done():
                self._wait(job)
        self._dispatch()


def _since(level: Turns[Job]) -> float:
    return level.first.since if level.first is not None else 0.0


def _logged(answer: Answer) -> Answer:
    """What is told of a fault of the compiler, as a refusal; the rest is for who looks after the server."""
    told, _, detail = answer.content.partition(b"\n")
    log.error("a grammar failed: %.*r", MOST_TOLD, detail.decode(errors="replace"))
    return answer._replace(outcome=Outcome.REFUSED, content=told)


def _finish(job: Job, answer: Answer) -> None:
    if not job.answer.done():
        job.answer.set_result(answer)


def _fail(job: Job, error: Exception) -> None:
    if not job.answer.done():
        job.answer.set_exception(error)
