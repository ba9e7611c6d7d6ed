"""What every scheduler offers to the process that started it, and which designs there are."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


class SchedulerKind(StrEnum):
    """Who schedules: the GPU (on a CPU, its emulation), or a host thread in one of three designs.

    The host's are there to compare with (kernels/scheduler/driven/README.md).
    """

    GPU = "gpu"
    BLOCKING = "blocking"
    PIPELINED = "pipelined"
    ASYNC = "async"

    @property
    def host_driven(self) -> bool:
        return self is not SchedulerKind.GPU


class Scheduler(Protocol):
    """A scheduler that was started. It runs until the ring's control word stops it."""

    def wait(self, timeout_s: float) -> bool:
        """Waits at most `timeout_s` seconds. True once the scheduler has stopped."""
        ...

    def error(self) -> int:
        """The driver's error code by which a scheduler that has stopped was ended; 0: none."""
        ...

    def close(self) -> None:
        """Releases what the scheduler holds. It must have stopped."""
        ...
