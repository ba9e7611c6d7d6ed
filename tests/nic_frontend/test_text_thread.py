"""Texts that are too long for the event loop: in their order, and a process that ends though one does not."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import Future

import pytest
from limits import PROGRAM_S, WAIT_S

from nic_frontend.text import text_thread
from nic_frontend.text.text_thread import LOOKS, TextThread, queued_s

STUCK = """
import asyncio, sys, threading
from nic_frontend.text.text_thread import TextThread

async def main():
    thread = TextThread()
    never = asyncio.create_task(thread.run(threading.Event().wait))
    await thread.stuck(0.2)
    never.cancel()

asyncio.run(main())
print("ends")
"""


def test_a_process_ends_beside_work_that_never_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STUCK], capture_output=True, text=True, check=False, timeout=PROGRAM_S
    )
    assert (done.stdout, done.stderr, done.returncode) == ("ends\n", "", 0)


def test_work_is_done_in_its_order_and_not_begun_when_nobody_waits() -> None:
    async def story() -> None:
        thread, goes, done = TextThread(), threading.Event(), list[int]()
        first = asyncio.create_task(thread.run(lambda: goes.wait(WAIT_S) and done.append(0)))
        others = [asyncio.create_task(thread.run(lambda i=i: done.append(i))) for i in (1, 2, 3)]  # type: ignore[misc]
        await asyncio.sleep(0)
        others[1].cancel()
        await asyncio.sleep(0)
        goes.set()
        await asyncio.gather(first, others[0], others[2])
        assert done == [0, 1, 3]
        with pytest.raises(ZeroDivisionError):
            await thread.run(lambda: 1 // 0)

    asyncio.run(asyncio.wait_for(story(), WAIT_S))


class Looks:
    """What `stuck` sees of a thread: another piece of work at every `each`-th look, and how long the thread
    waited for a core before it.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, each: int, starved_s: float) -> None:
        self.thread, self.n, self._each, self._starved_s = TextThread(), 0, each, starved_s
        monkeypatch.setattr(text_thread.asyncio, "sleep", self.look)
        monkeypatch.setattr(text_thread, "queued_s", lambda: {"": 0.0, "7": self.n * self._starved_s})

    async def look(self, seconds: float) -> None:
        if self.n % self._each == 0:
            self.thread._doing = Future()
        self.n += 1
        if self.n > 10 * text_thread.LOOKS:
            raise TimeoutError

    def until_stuck(self) -> int | None:
        """How many."""
        try:
            asyncio.run(self.thread.stuck(limit_s=1.0 * text_thread.LOOKS))
        except TimeoutError:
            return None
        return self.n


@pytest.mark.parametrize(
    ("each", "starved_s", "looks"),
    [(1000, 0.0, 1 + LOOKS), (1000, 0.5, 1 + 2 * LOOKS), (1000, 1.0, None), (LOOKS, 0.0, None)],
)
def test_only_time_that_it_had_for_one_piece_of_work_counts(
    monkeypatch: pytest.MonkeyPatch, each: int, starved_s: float, looks: int | None
) -> None:
    """F13."""
    assert Looks(monkeypatch, each, starved_s).until_stuck() == looks


def test_the_kernel_tells_how_long_threads_wait_for_a_core() -> None:
    queued = queued_s()
    assert str(threading.get_native_id()) in queued
    assert all(waited_s >= 0 for waited_s in queued.values())
