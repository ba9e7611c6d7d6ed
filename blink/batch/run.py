"""A batch: asks for each line of its file that is not answered yet, as many at a time as there are slots."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from blink.batch.answers import Answers
from blink.batch.lines import ENVELOPE_BYTES, Index, Line, WrongLine, asked_by, id_of, key_of, lines_of
from blink.batch.post import Response, post
from blink.errors import CommandError
from nic_frontend.app import App
from nic_frontend.service import Service
from ringbuffer.model_file import shown

DOWN = 503
BUSY = (429, DOWN)  # there may be room when others have ended
RETRY_S = 0.05
MOST_WARNINGS = 20  # different ones that are told


class Batch:
    """Construct it before anything is started: that reads both files. Raises CommandError."""

    def __init__(self, requests: Path, answers: Path, longest_body: int) -> None:
        self._path = requests
        self._longest = longest_body + ENVELOPE_BYTES
        if answers.exists() and answers.samefile(requests):
            raise CommandError(f"{answers}: the requests are in this file: give another one for the answers")
        self.index = Index(requests, self._longest)
        self.answers = Answers(answers, self.index)
        self._warned: set[str] = set()

    def close(self) -> None:
        self.answers.close()

    async def run(
        self, service: Service, failure: Callable[[], str | None], told: Callable[[str | None], None]
    ) -> None:
        """Returns when every line is answered. `told` is called with None for each that is, and with a
        warning about some. `failure` says why the backend cannot answer any more.

        Raises CommandError when the backend has ended.
        """
        app = App(service)
        waiting = self._waiting()
        room = Room(service.options.body_memory_bytes)

        async def work() -> None:
            while (line := await room.next(waiting)) is not None:
                try:
                    await self._answer(line, app, service, failure, told)
                finally:
                    room.leave(line)
                told(None)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(len(self.index) - self.index.n_answered, service.lease.n_slots)):
                    group.create_task(work())
                    await asyncio.sleep(0)  # so that the first are submitted before the last are tokenized
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    def _waiting(self) -> Iterator[Line]:
        for line in lines_of(self._path, self._longest):
            if not self.index.answered(key_of(id_of(line.content), line.number)):
                yield line

    async def _answer(
        self,
        line: Line,
        app: App,
        service: Service,
        failure: Callable[[], str | None],
        told: Callable[[str | None], None],
    ) -> None:
        custom_id = id_of(line.content)
        try:
            asked = asked_by(line, self._longest)
        except WrongLine as error:
            self.answers.write_error(line.number, custom_id, "invalid_line", f"line {line.number}: {error}")
            return
        deadline = time.monotonic() + service.options.request_timeout_s
        while True:
            response = await post(app, asked.url, asked.body)
            if response.status == DOWN and (why := failure() or service.tracker.down):
                raise CommandError(f"{why}; the same command goes on from here")
            if response.status not in BUSY or time.monotonic() > deadline:
                break
            await asyncio.sleep(RETRY_S)
        self._warn(response, told)
        if response.media_type != "application/json":  # the file could not be read again
            why = f"line {line.number}: the answer is {shown(response.media_type)}, and only JSON is kept"
            self.answers.write_error(line.number, custom_id, "invalid_answer", why)
            return
        request_id = response.headers.get("x-request-id", "")
        self.answers.write(line.number, custom_id, response.status, request_id, response.body)

    def _warn(self, response: Response, told: Callable[[str | None], None]) -> None:
        """What requests ask for and does not mean what it may seem to: once, for many alike."""
        warning = response.headers.get("x-blink-warning")
        if warning and warning not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(warning)
            told(warning)


class Room:
    """Lines are read when there is room for them: all that are being answered have at most `most` bytes, or
    are a single one.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._reading = asyncio.Lock()
        self._left = asyncio.Event()

    async def next(self, lines: Iterator[Line]) -> Line | None:
        """None: there are no more."""
        async with self._reading:
            if (line := next(lines, None)) is None:
                return None
            while self._held and self._held + len(line.content) > self._most:
                self._left.clear()
                await self._left.wait()
            self._held += len(line.content)
            return line

    def leave(self, line: Line) -> None:
        self._held -= len(line.content)
        self._left.set()
