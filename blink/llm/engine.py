"""A frontend of one ring in a thread of this process, and the backend that it may have started.

Whoever asks is in another thread, whose own event loop, if it has one, stays its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, TypeVar

from blink.backend_process import BackendProcess
from blink.llm.answer import Answer
from blink.llm.questions import Question
from nic_frontend.api import contradictions
from nic_frontend.api.chat import parse_chat
from nic_frontend.api.choices import Choices
from nic_frontend.api.completion import parse_completion
from nic_frontend.api.job import Job
from nic_frontend.errors import ApiError, unavailable
from nic_frontend.options import FrontendOptions
from nic_frontend.service import Service

T = TypeVar("T")

BUSY = 429  # too many grammars wait to be compiled: those that are fewer soon
RETRY_S = 0.05
CLOSED = "this LLM has been closed"


class Engine:
    """Serves once it is constructed, until `close`, which also the end of the interpreter has to call.

    Raises CommandError when the backend does not start, TransportError when the ring cannot be used, and
    FileNotFoundError or ValueError when the model's files cannot.
    """

    def __init__(self, options: FrontendOptions, backend: BackendProcess | None) -> None:
        """`backend` is started, and ended with this engine; None: attach to the ring of a running one."""
        self.failure: str | None = None  # why it cannot answer any more
        self._options = options
        self._backend = backend
        self._service: Service | None = None
        self._making: asyncio.Future[Service] | None = None
        self._closed = threading.Lock()  # taken by whoever closes it
        self._pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._turn, name="blink", daemon=True)
        self._thread.start()
        try:
            self.start(self._begin()).result()
        except BaseException:  # Ctrl-C among them
            self.close()
            raise

    def _turn(self) -> None:
        """The thread: the loop, until it is stopped, and the end of what came when that was under way."""
        self._loop.run_forever()
        self._loop.run_until_complete(cancel_others())
        self._loop.close()

    async def _begin(self) -> None:
        if self._backend is not None:
            self._backend.on_end = self._fail
            await self._backend.start()
        self._making = self._loop.run_in_executor(None, Service, self._options)
        service = await asyncio.shield(self._making)
        service.on_given_up = lambda: self._fail(service.given_up or "the ring is gone")
        await service.start()
        self._places = asyncio.Semaphore(service.lease.n_slots)
        self._service = service

    def _fail(self, why: str) -> None:
        """Everything that is open fails now, and what comes later when it comes."""
        if self.failure is None:
            self.failure = why
        if self._service is not None:
            self._service.tracker.fail_all(unavailable(why))

    @property
    def service(self) -> Service:
        """Raises RuntimeError when it has been closed, and in a process that was forked from its own."""
        if os.getpid() != self._pid:
            raise RuntimeError("this LLM is the parent process's: make another in this process")
        if self._service is None:
            raise RuntimeError(CLOSED)
        return self._service

    def check(self) -> Service:
        """The service. Raises RuntimeError where `service` does, and when it cannot answer any more."""
        service = self.service
        if self.failure is not None:
            raise RuntimeError(self.failure)
        return service

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Runs `work` on the event loop. Its cancellation cancels it there. Raises RuntimeError when there is
        no loop any more.
        """
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise RuntimeError(CLOSED) from None

    async def answer(self, question: Question, answer: Answer) -> None:
        """Asks and returns when `answer` is complete. Cancelled, it ends the request.

        No more are asked at a time than there are slots: the others are not even tokenized. Raises ApiError
        when there is no answer.
        """
        async with self._places:
            await self._answer(question, answer)

    async def _answer(self, question: Question, answer: Answer) -> None:
        service = self.service
        job = await self._job(question)
        text = question.text
        if question.chat:
            (text,) = await service.tokenizer.decode([job.prompts[0].tolist()])
        mailbox = job.mailbox(self._options.max_buffered_tokens, streamed=answer.is_streamed)
        requests = job.requests(service.limits, mailbox, time.perf_counter())
        contradictions.check(requests[0], job.grammars.param, service.served)
        answer.begin(text, requests, service.served.texts())
        choices = Choices(job, requests, service.tokenizer, service.tracker, service.metrics)
        outcome = "error"
        try:
            if self.failure is not None:
                raise unavailable(self.failure)
            await choices.submit()
            while not choices.finished:
                for shown in await choices.shown(lambda shown: shown):
                    if job.conclusion:
                        job.answer.add(shown)  # which sees when the model has thought enough
                    answer.add(shown)
        except asyncio.CancelledError:
            outcome = "abort"
            raise
        finally:
            choices.close(outcome)

    async def _job(self, question: Question) -> Job:
        served = self.service.served
        while True:
            try:
                body = question.body()
                if not question.chat:  # programs for vLLM ask for more tokens than fit, and get those that do
                    return await parse_completion(body, served, default_tokens=None, cuts_answer=True)
                # The caller gets the text as it is: marks of calls and thoughts are treated as any others.
                return replace(await parse_chat(body, served, cuts_answer=True), shown=frozenset())
            except ApiError as error:
                if error.status != BUSY:
                    raise
            await asyncio.sleep(RETRY_S)

    # ---------------------------------------------------------------- the end

    def close(self) -> None:
        """Cancels what is open, gives the lease back and ends the backend that was started. Harmless when it
        has been closed, and in a process that was forked.
        """
        if os.getpid() != self._pid or not self._closed.acquire(blocking=False):
            return
        if threading.current_thread() is self._thread:  # a collection of garbage may be anywhere
            threading.Thread(target=self._close, name="blink-close").start()
        else:
            self._close()

    def _close(self) -> None:
        try:
            service = self.start(self._stop()).result()
            if service is not None:
                service.close()
        finally:
            try:
                if self._backend is not None:
                    self.start(self._backend.stop()).result()
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    async def _stop(self) -> Service | None:
        """Ends all that runs on the loop. Returns the service that is to be closed, if there is one."""
        self.failure = self.failure or CLOSED
        await cancel_others()
        service, self._service = self._service, None
        if service is not None:
            await service.stop()
        elif self._making is not None:  # the wait for it was cancelled, and it has not started
            with contextlib.suppress(Exception):
                service = await self._making
        return service


async def cancel_others() -> None:
    """Ends all tasks of this loop but the one that asks."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
