"""The thread for texts that are too long for the event loop: whoever streams does not wait for them."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

LOOKS = 20  # at the thread, in the time that one text is allowed


def queued_s() -> dict[str, float]:
    """For how long each thread of this process has waited for a core so far (proc_pid_schedstat(5)); 0 where
    the kernel does not tell."""
    queued = {"": 0.0}
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError, IndexError):  # it has ended meanwhile
            queued[thread.name] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return queued


class TextThread:
    """Does one piece of work after the other. One may never end: the process can end beside it, which it
    could not with a thread of ThreadPoolExecutor.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._doing: Future[Any] | None = None

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns or raises. Work that nobody awaits any more is not begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="texts", daemon=True)
            self._thread.start()
        answer: Future[T] = Future()
        self._queue.put((answer, work))
        return await asyncio.wrap_future(answer)

    async def stuck(self, limit_s: float) -> None:
        """Returns when the thread has been at one piece of work for `limit_s`. Only time counts in which the
        event loop turned and no thread waited for a core: a process that was stopped or starved is not stuck
        (F13).
        """
        looks, queued, before = 0, dict[str, float](), None
        while True:
            await asyncio.sleep(limit_s / LOOKS)
            now = self._doing
            if now is None or now is not before:
                looks, queued, before = 0, queued_s() if now else {}, now
                continue
            looks += 1
            starved_s = max(waited_s - queued.get(thread, 0.0) for thread, waited_s in queued_s().items())
            if limit_s * looks / LOOKS - starved_s >= limit_s:
                return

    def _run(self) -> None:
        while True:
            answer, work = self._queue.get()
            if answer.set_running_or_notify_cancel():
                self._doing = answer
                try:
                    answer.set_result(work())
                except BaseException as error:
                    answer.set_exception(error)
                self._doing = None
            del answer, work  # a text may be long
