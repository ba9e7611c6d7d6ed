"""What the host process sees of a scheduler that serves: its phase in the ring, and whether it still runs."""

from __future__ import annotations

import contextlib
import time

from gpu_backend.devices.base import Ring
from gpu_backend.messages import say
from gpu_backend.schedulers.base import Scheduler
from ringbuffer.abi import Fault, Phase
from ringbuffer.fault import RUNS_ON, describe
from ringbuffer.words import name_of

BEAT_S = 0.1  # a scheduler writes its heartbeat many times meanwhile


class Watch:
    """Watches `scheduler` through `ring` until `end`, after which neither is touched any more."""

    def __init__(self, ring: Ring, scheduler: Scheduler, processors: tuple[str, ...] = ()) -> None:
        """`processors`: the names of the logits processors."""
        self._ring, self._scheduler, self._processors = ring, scheduler, processors
        self._runs_on = False
        self._fault: str | None = None
        self._told_unknown = False  # that the ring's phase is none
        self._over = False
        self._heartbeat = -1  # when `beats` was asked last

    def end(self) -> None:
        self._over = True

    def fault(self) -> str | None:
        """Why the scheduler gave up or died, or None; after `end`, why it had until then."""
        if self._fault is None and not self._over:
            self._fault = self._look()
        return self._fault

    def step_runs_on(self) -> bool:
        """Whether the scheduler gave up a step that has not ended, and may never do so."""
        return self.fault() is not None and self._runs_on

    def beats(self) -> bool:
        """Whether the heartbeat has changed since this was asked last."""
        before = self._heartbeat
        with contextlib.suppress(RuntimeError):  # the ring is in the memory of a GPU that is lost
            self._heartbeat = self._ring.heartbeat()
        return self._heartbeat != before

    def _look(self) -> str | None:
        try:
            dead = self._scheduler.wait(0)  # asked first: one that ends has written its phase before
            phase = self._ring.phase()
            if not isinstance(phase, Phase):
                self._tell_unknown(phase)
            if phase == Phase.FAILED:
                fault, detail = self._ring.fault()
                self._runs_on = fault in RUNS_ON
                return f"the scheduler failed: {describe(fault, detail, self._processors)}"
            # A stream that is asked between two executions of the kernel might have nothing to do.
            dead = dead and phase != Phase.STOPPED and not self._beats()
        except RuntimeError as error:  # the ring is in the memory of a GPU that is lost
            return f"the ring cannot be read any more: {error}"
        return self._bury() if dead else None

    def _bury(self) -> str:
        """A scheduler died without a word, with the GPU's context in which it ran: frontends are told in its
        place, and need not wait until its heartbeat has stood still for long enough."""
        error = self._scheduler.error()
        self._ring.fail(Fault.DEVICE, error)
        if not error:
            return "the scheduler died without saying why: the GPU may be lost, see dmesg and `blink doctor`"
        return f"the scheduler died: {describe(Fault.DEVICE, error)}; see dmesg and `blink doctor`"

    def _tell_unknown(self, phase: int) -> None:
        """The scheduler has not written it, and will write its phase again: nothing ends by it."""
        if not self._told_unknown:
            say(f"the ring's phase is {name_of(Phase, phase)}: another process writes to the ring")
        self._told_unknown = True

    def _beats(self) -> bool:
        before = self._ring.heartbeat()
        time.sleep(BEAT_S)
        return self._ring.heartbeat() != before
