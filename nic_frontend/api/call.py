"""A call: one POST to a generation endpoint, from its body to its last byte."""

from __future__ import annotations

import asyncio
import time
from collections.abc import MutableMapping
from functools import partial
from itertools import chain
from typing import Any

from nic_frontend.api.answer import Answer, Events
from nic_frontend.api.choices import Choices
from nic_frontend.api.job import Job
from nic_frontend.api.silence import Silence
from nic_frontend.errors import ApiError, ClientGone, took_too_long
from nic_frontend.http.asgi import STREAM, Receive, Send, disconnected, encoded, respond_json
from nic_frontend.http.long_json import PIECE
from nic_frontend.observe.metrics import Metrics
from nic_frontend.ring.request import Mailbox, Request
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.text.tokenizer import Tokenizer


class Call:
    """Submits a job's choices and sends what they answer."""

    def __init__(
        self,
        job: Job,
        requests: list[Request],
        tokenizer: Tokenizer,
        tracker: RequestTracker,
        metrics: Metrics,
    ) -> None:
        self._job = job
        self._mailbox = requests[0].mailbox
        self._choices = Choices(job, requests, tokenizer, tracker, metrics)

    async def run(self, receive: Receive, send: Send, arrived: float, timeout_s: float) -> None:
        """Raises ApiError when it fails before the response began, 504 when it is not over `timeout_s` after
        it `arrived` among them, and ClientGone when nobody is left to answer.
        """
        left_s = max(0.0, arrived + timeout_s - time.perf_counter())
        timer = asyncio.get_running_loop().call_later(left_s, self._mailbox.give_up, took_too_long(timeout_s))
        watcher = asyncio.create_task(watch_client(receive, self._mailbox))
        outcome = "error"
        try:
            await self._choices.submit()
            if self._job.kept is not None:
                await self._job.kept.begin()
            if self._job.parameters.stream:
                await self._stream(send, self._job.answer)
            else:
                await self._collect(send, self._job.answer)
        except ClientGone:
            outcome = "abort"
            raise
        except asyncio.CancelledError:
            outcome = "abort"
            if self._mailbox.abandoned:
                raise ClientGone from None
            raise
        finally:
            timer.cancel()
            watcher.cancel()
            self._choices.close(outcome)

    async def _collect(self, send: Send, answer: Answer) -> None:
        while not self._choices.finished:
            await self._choices.shown(answer.add)
        await self._keep()
        sends = partial(self._send, send)
        await respond_json(sends, 200, answer.whole(self._choices.usage()), self._job.warning_headers())

    async def _keep(self) -> None:
        """Before its client knows that the answer is complete, and may refer to it."""
        if self._job.kept is not None:
            await self._job.kept.keep(self._choices.usage())

    async def _stream(self, send: Send, answer: Answer) -> None:
        headers = [*STREAM, *encoded(self._job.warning_headers())]
        silence = Silence(self._mailbox)
        try:
            await self._send(send, {"type": "http.response.start", "status": 200, "headers": headers})
            text = await self._all_but_last(send, [answer.opening()])
            while True:
                if text:
                    await self._send_text(send, text)
                    silence.broken()
                if self._choices.finished:
                    await self._keep()
                    break
                text = await self._all_but_last(send, await self._choices.shown(answer.events))
                if silence.is_long:
                    text = text or answer.keep_alive
        except ApiError as error:
            closing = answer.failed(error)
        else:
            closing = await self._all_but_last(send, [answer.closing(self._choices.usage())])
        finally:
            silence.end()
        await self._send(send, {"type": "http.response.body", "body": closing.encode()})

    async def _all_but_last(self, send: Send, groups: list[Events]) -> str:
        """Sends events as soon as there are more than PIECE characters, and returns what is left. Other calls
        have their turns between what is made of long ones.
        """
        text = ""
        for event in chain.from_iterable(groups):
            for piece in [event] if isinstance(event, str) else event:
                text += piece
                if len(text) > PIECE:
                    await self._send_text(send, text)
                    text = ""
                if not isinstance(event, str):
                    await asyncio.sleep(0)
        return text

    async def _send_text(self, send: Send, text: str) -> None:
        await self._send(send, {"type": "http.response.body", "body": text.encode(), "more_body": True})

    async def _send(self, send: Send, message: MutableMapping[str, Any]) -> None:
        self._mailbox.sending = True
        await send(message)
        self._mailbox.sending = False


async def watch_client(receive: Receive, mailbox: Mailbox) -> None:
    await disconnected(receive)
    mailbox.fail(ClientGone())
