"""The choices of a job in the ring: from their submission to their last tokens, as text.

They share one mailbox. Who asked, and in what form it is answered, is not known here.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api import contradictions
from nic_frontend.api.answer import Shown, Usage
from nic_frontend.api.job import Job
from nic_frontend.observe.metrics import Metrics
from nic_frontend.ring.reasons import ANSWERED
from nic_frontend.ring.request import Arrival, Request
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


class Choices:
    """`submit` them, then ask for what is `shown` until they are `finished`. `close` them in any case."""

    def __init__(
        self,
        job: Job,
        requests: list[Request],
        tokenizer: Tokenizer,
        tracker: RequestTracker,
        metrics: Metrics,
    ) -> None:
        self.mailbox = requests[0].mailbox
        self._job = job
        self._tracker = tracker
        self._metrics = metrics
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

    async def submit(self) -> None:
        """Raises what RequestTracker.submit does."""
        requests = [choice.request for choice in self._choices]
        await self._tracker.submit(requests)
        # A proxy: choices that have ended are freed at once, and do not wait for a collection of garbage.
        self._job.answer.begin(requests, weakref.proxy(self))

    def close(self, outcome: str) -> None:
        """Cancels what is still computed; `outcome` is what the metrics call that, "abort" or "error"."""
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

    async def shown(self, show: Callable[[Shown], T]) -> list[T]:
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
                thinking.index, prompt, sampling, self.mailbox, thinking.arrived,
                grammar=self._job.grammars.concluding, client=thinking.client,
                tells_cached=thinking.tells_cached,
            )  # fmt: skip
            request.first_token, request.last_token = thinking.first_token, thinking.last_token
            request.n_tokens = thinking.n_tokens
            choice.request = request
            await self._tracker.submit([request])
        return Shown(thinking.index, pieces, conclusion, generation.ending, generation.n_tokens)

    async def _take(self) -> list[Shown]:
        """Waits for arrivals, and says what each of them shows; none where only the silence has become long.
        A token that shows none is an event, too: clients count chunks.

        However much has arrived, other calls get their turn after each BURST_TOKENS of it (F10).
        """
        if not self._arrivals:
            self._arrivals.extend(await self.mailbox.take())
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

    @property
    def finished(self) -> bool:
        return all(choice.generation.ending is not None for choice in self._choices)

    def usage(self) -> Usage:
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
