"""Ends sessions of processes (setsid(2)): all that a program has started, and not only its process group.

Ninja, for one, gives every command a group of its own, and a child whose parent was killed belongs to another
parent; its session stays, unless the child asks for a new one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection

from blink.bench.cpu_time import processes
from blink.errors import CommandError

END_S = 10.0
LOOK_S = 0.01
STATE, SESSION = 0, 3  # of the fields that `processes` gives
ENDED = "ZX"  # states: only whoever started it has not asked for its status yet


def living(sessions: Collection[int]) -> set[int]:
    """Processes of these sessions that have not ended."""
    return {
        pid for pid, fields in processes() if int(fields[SESSION]) in sessions and fields[STATE] not in ENDED
    }


def end_sessions(leaders: Collection[int]) -> None:
    """SIGKILL for every process of the sessions that these processes lead, and for what it started meanwhile.

    Returns when all have ended. Raises CommandError where some have not within END_S. The leaders must not
    have been waited for: a number that is free again may be another's.
    """
    deadline = time.monotonic() + END_S
    while rest := living(leaders):
        for pid in rest:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise CommandError(f"processes do not end: {', '.join(map(str, sorted(rest)))}")
        time.sleep(LOOK_S)
