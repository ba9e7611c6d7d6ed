"""The machine as it is now, for the page at `/`: slots by state, KV pages, what was served, the last steps.

Everything but the frontends' own figures is read from the ring, so watching costs neither the scheduler nor
the backend anything. What was read serves all who ask within REUSE_S.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.metrics import added
from nic_frontend.ring.ring_thread import RingThread
from nic_frontend.transport.base import Transport
from ringbuffer import abi
from ringbuffer.version import version
from ringbuffer.words import name_of, text

REUSE_S = 0.25
SHOWN_HISTOGRAMS = ("time_to_first_token_seconds", "inter_token_latency_seconds")
LIMITS = ("n_slots", "max_batch", "max_context", "total_pages", "page_size")
STATE_SHIFT, STATE_MASK = 32, 0xF  # of a status word (ring.h)
LONGEST_STEP_NS = 600_000_000_000  # a record beyond it was read while it was written


class Live:
    """`look` finds the figures of all frontends, and the ring's header."""

    def __init__(
        self,
        model: str,
        transport: Transport,
        thread: RingThread,
        look: Callable[[], Awaitable[Seen]],
        is_local: bool,
    ) -> None:
        self._model, self._transport, self._look, self._is_local = model, transport, look, is_local
        self._thread = thread
        self._reading = asyncio.Lock()
        self._when = 0.0
        self._last: dict[str, Any] = {}

    async def state(self) -> dict[str, Any]:
        """As JSON has it. Raises TransportError while the link is down."""
        async with self._reading:
            now = time.monotonic()
            if now - self._when > REUSE_S:
                self._last, self._when = await self._read(now), now
            return self._last

    async def _read(self, now: float) -> dict[str, Any]:
        seen = await self._look()
        header, figures = seen.header, added(list(seen.frontends.values()))
        return {
            "version": version(),
            "model": self._model,
            "device": text(header["device_name"].tobytes()),
            "phase": name_of(abi.Phase, int(header["phase"])),
            "time_s": now,
            "limits": {name: int(header[name]) for name in LIMITS},
            "slots": await self._thread.run(lambda: self._slots(header)),
            "stats": {name: int(header["stats"][name]) for name in abi.Stats.names or ()},
            "steps": shown_steps(header["steps"]),
            "frontends": len(seen.frontends),
            "counters": figures["counters"],
            "finished": figures["finished"],
            "histograms": {name: figures["histograms"][name] for name in SHOWN_HISTOGRAMS},
            "backend_cpu_s": cpu_seconds(int(header["backend_pid"])) if self._is_local else None,
        }

    def _slots(self, header: np.void) -> dict[str, int]:
        """How many there are in each state."""
        n_bytes = int(header["n_slots"]) * abi.Progress.itemsize
        entries = np.frombuffer(self._transport.read(int(header["progress_offset"]), n_bytes), abi.Progress)
        states = (entries["status"] >> np.uint64(STATE_SHIFT)) & np.uint64(STATE_MASK)
        counts = np.bincount(states.astype(np.intp), minlength=len(abi.State))
        return {state.name.lower(): int(counts[state]) for state in abi.State}


def shown_steps(records: NDArray[np.void]) -> list[dict[str, int]]:
    """The last steps, oldest first, without a record that was read while it was written."""
    found = sorted(records.tolist())
    newest = found[-1][0] if found else 0
    return [
        {
            "id": number,
            "start_ns": start,
            "ns": done - start,
            "prompt_tokens": tokens & 0xFFFFFFFF,
            "decoding": tokens >> 32,
        }
        for number, start, done, tokens in found
        if number and newest - number < abi.SHOWN_STEPS and 0 <= done - start < LONGEST_STEP_NS
    ]


def cpu_seconds(pid: int) -> float | None:
    """What the process has used of the CPU; None where there is none, as in another container."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime (proc(5))
