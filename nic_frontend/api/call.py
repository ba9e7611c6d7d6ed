"""A call: one POST to a generation endpoint, from its body to its last byte.

Its choices share one mailbox.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import weakref
from collections import deque
from collections.abc import Callable, MutableMapping
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api import contradictions
from nic_frontend.api.answer import Answer, Events, Shown, Usage
from nic_frontend.api.job import Job
from nic_frontend.api.silence import Silence
from nic_frontend.errors import ApiError, ClientGone, took_too_long
from nic_frontend.http.asgi import STREAM, Receive, Send, disconnected, encoded, respond_json
from nic_frontend.http.long_json import PIECE
from nic_frontend.observe.metrics import Metrics
from nic_frontend.ring.reasons import ANSWERED
from nic_frontend.ring.request import Arrival, Mailbox, Request
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.text.generation import Ending, Generation
from nic_frontend.text.stop import StopAutomaton
from nic_frontend.text.tokenizer import Tokenizer

T = TypeVar("T")

BURST_TOKENS = 256  # are handled before other calls get their turn: 2 ms of work, 10 with a window


class Choice:
    """One choice of a call, for as long as the call lives. A second request may take the place of the one
    that was `asked`, when its model has thought enough.
    """

    def __init__(self, asked: Request, generation: Generation) -> None:
        self.asked = self.request = asked
        self.generation = generation
        self.tokens: list[int] = []  # where its thinking may have to be ended
        self.held: dict[int, str] = {}  # text that it then held back, behind so many tokens
        self.thought: int | None = None  # so many tokens, which are enough


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
        self._tracker = tracker
        self._metrics = metrics
        self._mailbox = requests[0].mailbox
        self._arrivals: deque[Arrival] = deque()  # taken from the mailbox, not handled yet
        self._handled = 0  # tokens, and one for each arrival, since other calls had their turn
        self._tokenizer = tokenizer
        self._stops = StopAutomaton(job.parameters.stops) if job.parameters.stops else None
        self._choices = [Choice(request, self._generation(request.prompt)) for request in requests]

    def _generation(self, prompt: NDArray[np.uint32]) -> Generation:
        p = self._job.parameters
        detokenizer = self._tokenizer.detokenizer(
            skip_special_tokens=p.skip_special_tokens, prompt=prompt, shown=self._job.shown
        )
        return Generation(detokenizer, self._stops, p.include_stop, p.sampling.min_tokens)

    async def run(self, receive: Receive, send: Send, arrived: float, timeout_s: float) -> None:
        """Raises ApiError when it fails before the response began, 504 when it is not over `timeout_s` after
        it `arrived` among them, and ClientGone when nobody is left to answer.
        """
        left_s = max(0.0, arrived + timeout_s - time.perf_counter())
        timer = asyncio.get_running_loop().call_later(left_s, self._mailbox.give_up, took_too_long(timeout_s))
        watcher = asyncio.create_task(watch_client(receive, self._mailbox))
        outcome = "error"
        try:
            requests = [choice.request for choice in self._choices]
            await self._tracker.submit(requests)
            # A proxy: calls that have ended are freed at once, and do not wait for a collection of garbage.
            self._job.answer.begin(requests, weakref.proxy(self))
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
            for choice in self._choices:
                self._tracker.cancel(choice.request)
                ending = choice.generation.ending
                self._metrics.on_finished(
                    choice.request, ending.finish_reason if ending else outcome, time.perf_counter()
                )

    def end(self, index: int, n_tokens: int) -> None:
        """See Control. What came behind is dropped (F7)."""
        choice = self._choices[index]
        choice.generation.ending = Ending("stop")
        choice.generation.n_tokens = n_tokens
        self._tracker.cancel(choice.request)

    def conclude(self, index: int, n_tokens: int) -> None:
        """See Control."""
        self._choices[index].thought = n_tokens

    async def _show(self, show: Callable[[Shown], T]) -> list[T]:
        """What `show` makes of the next arrivals."""
        results = []
        for shown in await self._take():
            choice = self._choices[shown.choice]
            if choice.thought is not None:
                continue  # it came behind the end of thinking
            if self._job.conclusion:
                choice.tokens += shown.tokens
            results.append(show(shown))
        if self._job.conclusion:
            for choice in self._choices:
                if choice.thought is not None:
                    results.append(show(await self._concluded(choice, choice.thought)))
                choice.thought = None
                choice.held.clear()
        return results

    async def _concluded(self, choice: Choice, n_tokens: int) -> Shown:
        """Ends a choice's thinking: what it has thought and the mark behind it become the prompt of another
        request, which answers. The prefix cache has most of that prompt.
        """
        thinking, conclusion = choice.request, self._job.conclusion
        self._tracker.cancel(thinking)
        tokens = [*choice.tokens[:n_tokens], *conclusion]
        prompt = np.concatenate([thinking.prompt, np.array(tokens, dtype=np.uint32)])
        generation = choice.generation = self._generation(prompt)
        generation.n_tokens = n_tokens
        pieces = [generation.feed(token) for token in conclusion]
        pieces[0] = choice.held.get(n_tokens, "") + pieces[0]
        asked = thinking.sampling
        if (left := asked.max_tokens - len(tokens)) < 1:
            generation.ending = Ending("length")
        if generation.ending is None:
            least = max(asked.min_tokens - len(tokens), 0)
            sampling = dataclasses.replace(asked, max_tokens=left, min_tokens=least, prompt_logprobs=None)
            request = Request(
                thinking.index, prompt, sampling, self._mailbox, thinking.arrived,
                grammar=self._job.grammars.concluding, client=thinking.client,
                tells_cached=thinking.tells_cached,
            )  # fmt: skip
            request.first_token, request.last_token = thinking.first_token, thinking.last_token
            request.n_tokens = thinking.n_tokens
            choice.request = request
            await self._tracker.submit([request])
        return Shown(thinking.index, pieces, conclusion, generation.ending, generation.n_tokens)

    async def _collect(self, send: Send, answer: Answer) -> None:
        while not self._finished():
            await self._show(answer.add)
        sends = partial(self._send, send)
        await respond_json(sends, 200, answer.whole(self._usage()), self._job.warning_headers())

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
                if self._finished():
                    break
                text = await self._all_but_last(send, await self._show(answer.events))
                if silence.is_long:
                    text = text or answer.keep_alive
        except ApiError as error:
            closing = answer.failed(error)
        else:
            closing = await self._all_but_last(send, [answer.closing(self._usage())])
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

    async def _take(self) -> list[Shown]:
        """Waits for arrivals, and says what each of them shows; none where only the silence has become long.
        A token that shows none is an event, too: clients count chunks.

        However much has arrived, other calls get their turn after each BURST_TOKENS of it (F10).
        """
        if not self._arrivals:
            self._arrivals.extend(await self._mailbox.take())
        if self._handled >= BURST_TOKENS:
            self._handled = 0
            await asyncio.sleep(0)
        shown = []
        while self._arrivals and self._handled < BURST_TOKENS:
            arrival = self._arrivals.popleft()
            self._handled += 1 + len(arrival.tokens)
            shown.append(self._advance(arrival))
        return shown

    def _advance(self, arrival: Arrival) -> Shown:
        index, tokens = arrival.request.index, arrival.tokens
        choice = self._choices[index]
        generation = choice.generation
        pieces: list[str] = []
        if self._job.parameters.max_tokens == 0 and generation.ending is None:
            return self._only_prompt(arrival)
        if generation.ending is not None or arrival.request is not choice.request:
            return Shown(
                index, pieces, [], None, generation.n_tokens
            )  # what the scheduler produced past a stop string is dropped (F7)
        for token in tokens if arrival.reason is None else tokens[:-1]:
            pieces.append(generation.feed(token))
            if generation.ending is not None:
                self._tracker.cancel(arrival.request)
                break
            if self._job.conclusion and generation.held:
                choice.held[generation.n_tokens] = generation.held
        if arrival.reason is not None and generation.ending is None:
            pieces.append(self._finish(arrival, arrival.reason))
        told = None if arrival.logprobs is None else arrival.logprobs[: len(pieces)]
        return Shown(index, pieces, tokens[: len(pieces)], generation.ending, generation.n_tokens, told)

    def _finish(self, arrival: Arrival, reason: int) -> str:
        """The rest of a choice's text. Raises ApiError when the scheduler ended it without an answer (R7)."""
        if reason not in ANSWERED:
            p = self._job.parameters
            raise contradictions.ended(arrival.request, reason, self._job.grammars.param, p.eos_ids)
        return self._choices[arrival.request.index].generation.finish(arrival.tokens[-1:], reason)

    def _only_prompt(self, arrival: Arrival) -> Shown:
        """Nothing of an answer is wanted: the token that was sampled behind the prompt is dropped."""
        generation = self._choices[arrival.request.index].generation
        if not arrival.tokens and arrival.reason is not None:
            self._finish(arrival, arrival.reason)  # which says what went wrong
        generation.ending = Ending("length")
        self._tracker.cancel(arrival.request)
        return Shown(arrival.request.index, [], [], generation.ending, 0)

    def _finished(self) -> bool:
        return all(choice.generation.ending is not None for choice in self._choices)

    def _usage(self) -> Usage:
        """Each prompt counts once, however many choices answer it, and so does what all of them found cached:
        the rest was computed for one of them, where the others may have found it.
        """
        n = self._job.parameters.n
        cached = [choice.asked.told_cached_tokens for choice in self._choices]
        return Usage(
            sum(len(prompt) for prompt in self._job.prompts),
            sum(choice.generation.n_tokens for choice in self._choices),
            sum(min(cached[first : first + n]) for first in range(0, len(cached), n)),
        )


async def watch_client(receive: Receive, mailbox: Mailbox) -> None:
    await disconnected(receive)
    mailbox.fail(ClientGone())
