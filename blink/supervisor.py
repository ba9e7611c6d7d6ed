"""Runs one backend and its frontends as processes: starts, watches, ends them. No request passes through it.

Events arrive in one queue: a signal, the backend's readiness, a frontend's readiness, the end of a child.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from blink.child import said_ready, spawn
from blink.stand_in import StandIn
from blink.supervisor_options import SupervisorOptions
from blink.terminal import Terminal
from nic_frontend.ring.host_segment import segment_path
from ringbuffer import messages
from ringbuffer.abandoned import give_back_abandoned
from ringbuffer.name import RingError, clear_name

PROGRESS_S = 10.0  # between two lines of a backend that takes its time
NOTICE_S = 1.0  # what ends sooner needs no word about the wait
KILL_S = 5.0  # for the system to reap a process after SIGKILL
FAILED_DRAIN_S = 10.0  # of the frontends of a dead backend: they fail their requests within seconds
STEADY_S = 60.0  # a child that served for this long is started again at once
LONGEST_PAUSE_S = 30.0  # between two starts of one that does not stay up


class Event(Enum):
    SIGNAL = auto()
    BACKEND_READY = auto()
    FRONTEND_READY = auto()
    ENDED = auto()
    TIMEOUT = auto()


@dataclass
class Child:
    """A process, and since when. `failures` counts ends soon after a start."""

    name: str
    process: asyncio.subprocess.Process | None = None
    since: float = 0.0
    failures: int = 0
    ready: bool = False
    start_bound: asyncio.Timeout | None = None  # while it starts
    watchers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.returncode is None

    @property
    def steady(self) -> bool:
        return self.ready and time.monotonic() - self.since > STEADY_S

    def signal(self, number: int) -> None:
        if self.alive and self.process:
            self.process.send_signal(number)

    def how_it_ended(self) -> str:
        if self.process is None:
            return f"{self.name} could not be started"
        status = self.process.returncode
        if status is not None and status < 0:
            return f"{self.name} was killed by {signal.Signals(-status).name}"
        return f"{self.name} ended with exit status {status}"


class Supervisor:
    """`run` returns the exit status of `blink serve`: 0 after a signal, 128 and its number after a second
    one, 1 after a failure."""

    def __init__(self, options: SupervisorOptions, reopen_log: Callable[[], None] = lambda: None) -> None:
        self._options = options
        self._reopen_log = reopen_log
        self._terminal = Terminal()
        self._hung_up = 0.0  # when SIGHUP came last
        self._backend = Child("the backend")
        self._frontends = [Child(f"frontend {i}") for i in range(options.n_frontends)]
        self._events: asyncio.Queue[tuple[Event, Child | None]] = asyncio.Queue()
        self._hurry = asyncio.Event()  # a second signal: no more patience
        self._signals: list[int] = []
        self._announced = False
        self._stand_in = StandIn(options.host, options.port, options.listener)
        self._began = time.monotonic()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup)
        status = 1
        timeout = loop.call_later(self._options.start_timeout_s, self._put, Event.TIMEOUT)
        try:
            await self._start(self._backend)
            status = await self._serve()
        finally:
            timeout.cancel()
            await self._stand_in.end()
            ended_well = await self._shut_down(failed=status != 0)
        if status == 0 and self._hurry.is_set():
            return 128 + self._signals[1]
        return status if ended_well else 1

    # ---------------------------------------------------------------- events

    async def _serve(self) -> int:
        """Handles events until one of them ends the service; returns the exit status."""
        while True:
            if self._announced and not any(frontend.ready for frontend in self._frontends):
                await self._stand_in.begin()
            else:
                await self._stand_in.end()
            event, child = await self._events.get()
            if event is Event.SIGNAL:
                return 0
            if event is Event.BACKEND_READY and self._backend.alive:
                self._is_ready(self._backend)
                self._backend.since = time.monotonic()
                self._bound_starts_of_frontends()
                if self._announced:
                    self._backend_serves_again()
                    continue
                for frontend in self._frontends:
                    await self._start(frontend)
            elif event is Event.TIMEOUT and not self._announced:
                say(f"not ready after {self._options.start_timeout_s:g} s: raise --start-timeout; stopping")
                return 1
            elif event is Event.FRONTEND_READY and child and child.alive:
                self._on_frontend_ready(child)
            elif event is Event.ENDED and child:
                child.failures = 0 if child.steady else child.failures + 1
                child.ready = False
                often = child is self._backend and child.failures > self._options.backend_restarts
                fatal = often or not self._announced
                say(f"{child.how_it_ended()}{'; stopping' if fatal else ''}")
                if fatal:
                    return 1
                if child is self._backend:
                    self._bound_starts_of_frontends()
                self._give_back_leases()
                self._start_again(child)

    def _backend_serves_again(self) -> None:
        """The frontends of the one before find out, end, and are started again."""
        for frontend in self._frontends:
            frontend.ready = False
        say("the backend serves again")

    def _put(self, event: Event, child: Child | None = None) -> None:
        self._events.put_nowait((event, child))

    def _on_signal(self, number: int) -> None:
        self._signals.append(number)
        if len(self._signals) == 2:
            say("ending at once")
            self._hurry.set()
        self._put(Event.SIGNAL)

    def _on_hangup(self) -> None:
        """The terminal is gone, and the server ends with it; otherwise somebody renamed the log, or renewed
        keys or the certificate. A child that still starts would end by the signal, and gets it later."""
        if self._terminal.is_gone():
            self._on_signal(signal.SIGHUP)
            return
        self._hung_up = time.monotonic()
        self._reopen_log()
        for child in (self._backend, *self._frontends):
            if child.ready:
                child.signal(signal.SIGHUP)

    def _is_ready(self, child: Child) -> None:
        if self._hung_up > child.since:
            child.signal(signal.SIGHUP)
        child.ready = True

    def _on_frontend_ready(self, child: Child) -> None:
        self._is_ready(child)
        if self._announced:
            say(f"{child.name} serves again")
        elif all(frontend.ready for frontend in self._frontends):
            self._announced = True
            say(f"ready after {time.monotonic() - self._began:.1f} s at {self._options.url}")

    # ---------------------------------------------------------------- children

    async def _start(self, child: Child) -> None:
        """Raises OSError when the system has no room for a process more."""
        is_backend = child is self._backend
        command = self._options.backend if is_backend else self._options.frontend
        listener = None if is_backend else self._options.listener
        inherited = [listener.fileno()] if listener is not None else []
        child.process, read_end = await spawn(command, self._options.environment, inherited)
        child.since, child.ready = time.monotonic(), False
        watching = [self._watch_end(child), self._watch_pipe(child, read_end)]
        watching += [self._tell_progress()] if is_backend else []
        child.watchers = [asyncio.create_task(watch) for watch in watching]

    def _give_back_leases(self) -> None:
        """Frees the slots of a frontend that died: its lease would keep them for seconds.

        A ring in GPU memory is out of reach here, and waits for the frontend that is started again.
        """
        with contextlib.suppress(RingError):
            give_back_abandoned(self._options.ring)

    def _start_again(self, child: Child) -> None:
        """At once after a steady run; ever later when starts keep failing."""
        pause = 0.0 if child.failures <= 1 else min(2.0 ** (child.failures - 2), LONGEST_PAUSE_S)
        say(f"starting {child.name} again{f' in {pause:g} s' if pause else ''}")
        for watcher in child.watchers:
            watcher.cancel()  # one that ended before it was ready is waited for still

        async def start() -> None:
            await asyncio.sleep(pause)
            try:
                await self._start(child)
            except OSError as error:
                say(f"{child.name}: {error}")
                child.process = None
                self._put(Event.ENDED, child)

        child.watchers = [asyncio.create_task(start())]

    async def _watch_end(self, child: Child) -> None:
        assert child.process
        await child.process.wait()
        self._put(Event.ENDED, child)

    async def _watch_pipe(self, child: Child, read_end: int) -> None:
        """A child writes when it serves: the backend, when its scheduler runs. One that was started again and
        does not is killed: the first start as a whole has a bound of its own.
        """
        try:
            async with asyncio.timeout(None) as child.start_bound:
                self._bound_start(child)
                ready = await said_ready(read_end)
        except TimeoutError:
            say(f"{child.name} is not ready after {self._options.start_timeout_s:g} s; killing it")
            child.signal(signal.SIGKILL)
            return
        finally:
            child.start_bound = None
        if ready:
            self._put(Event.BACKEND_READY if child is self._backend else Event.FRONTEND_READY, child)

    def _bound_start(self, child: Child) -> None:
        """From now on, where it is starting; a frontend has all the time that its backend takes to serve."""
        if child.start_bound is None or child.start_bound.expired():
            return
        bounded = self._announced and (child is self._backend or self._backend.ready)
        now = asyncio.get_running_loop().time()
        child.start_bound.reschedule(now + self._options.start_timeout_s if bounded else None)

    def _bound_starts_of_frontends(self) -> None:
        for frontend in self._frontends:
            self._bound_start(frontend)

    async def _tell_progress(self) -> None:
        while not self._backend.ready:
            await asyncio.sleep(PROGRESS_S)
            if not self._backend.ready:
                say(f"the backend is still starting ({time.monotonic() - self._backend.since:.0f} s)")

    # ---------------------------------------------------------------- the end

    async def _shut_down(self, *, failed: bool) -> bool:
        """Frontends first, so that what they have open can finish. False when a child had to be killed."""
        frontend_end_s = FAILED_DRAIN_S if failed else self._options.frontend_end_s
        for child in (self._backend, *self._frontends):
            if not child.alive:
                for watcher in child.watchers:
                    watcher.cancel()  # it may be waiting to start again
        notice = f"letting open requests finish, at most {self._options.drain_s:g} s"
        if signal.SIGINT in self._signals:
            notice += "; Ctrl-C again ends at once"
        tell = asyncio.get_running_loop().call_later(NOTICE_S, say, notice)
        if failed:
            tell.cancel()
        frontends_ended = await self._end(self._frontends, frontend_end_s)
        tell.cancel()
        backend_ended = await self._end([self._backend], self._options.backend_end_s)
        with contextlib.suppress(RingError):  # a living backend's: another server has the name
            clear_name(self._options.ring)  # a backend that was killed leaves its ring
        if not self._options.ring.exists():
            segment_path(self._options.ring).unlink(missing_ok=True)  # frontends that were killed leave it
        return frontends_ended and backend_ended

    async def _end(self, children: Sequence[Child], patience_s: float) -> bool:
        """Asks them to end, and sends SIGKILL to those that are still there after `patience_s` or a second
        signal. After SIGTERM a frontend that serves would wait long for clients that have idle connections,
        since it takes other frontends to serve on: SIGINT tells it that nobody does.
        """
        for child in children:
            nobody_serves_on = child is not self._backend and child.ready
            child.signal(signal.SIGINT if nobody_serves_on else signal.SIGTERM)
            child.signal(signal.SIGCONT)  # one that was suspended can end in order, too
        ended = asyncio.gather(*(child.process.wait() for child in children if child.process))
        hurry = asyncio.create_task(self._hurry.wait())
        await asyncio.wait((ended, hurry), timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        late = [child for child in children if child.alive]
        for child in late:
            if not self._hurry.is_set():
                say(f"{child.name} does not end; killing it")
            child.signal(signal.SIGKILL)
        await asyncio.wait((ended,), timeout=KILL_S)
        return not late


def say(text: str) -> None:
    messages.say("blink", text)
