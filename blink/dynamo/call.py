"""One request of Dynamo's, from its token ids to the last of the answer's. Its choices share a mailbox."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from itertools import chain
from typing import Any

from blink.dynamo.logprobs import of_answer
from blink.dynamo.request import FORM, ring_requests
from nic_frontend.api import contradictions
from nic_frontend.api.logprobs import prompt_logprobs
from nic_frontend.compiling.store import Asker
from nic_frontend.errors import ClientGone
from nic_frontend.ring.request import Arrival, Mailbox, Request
from nic_frontend.service import Service
from ringbuffer.abi import Reason

NUMBERS = itertools.count()
FINISH_REASONS = {Reason.EOS: "stop", Reason.STOP_ID: "stop", Reason.LENGTH: "length"}


class Call:
    """`end` is called once nobody wants more of it, however it ended."""

    def __init__(self, service: Service, max_buffered_tokens: int) -> None:
        self._service = service
        self._mailbox = Mailbox(max_buffered_tokens)
        self._ended = asyncio.Event()
        self._requests: list[Request] = []
        self._finished: dict[int, str] = {}  # why, by the choice's index

    async def chunks(self, asked: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        """What Dynamo's frontend takes: the tokens that have arrived since, of one choice.

        Raises ApiError for what cannot be served, and ClientGone after `end`.
        """
        service = self._service
        served = service.served.to(Asker(next(NUMBERS), self._ended.wait))  # requests take turns
        self._requests = await ring_requests(asked, served, service.sampling_defaults, self._mailbox)
        self._mailbox.check()  # `end` may have come in the meantime, and knew of no requests
        await service.tracker.submit(self._requests)
        while len(self._finished) < len(self._requests):
            for arrival in await self._mailbox.take():
                yield self._chunk(arrival)

    def _chunk(self, arrival: Arrival) -> dict[str, Any]:
        request, texts = arrival.request, self._service.served.texts()
        chunk: dict[str, Any] = {"token_ids": arrival.tokens, "index": request.index}
        if arrival.logprobs is not None and arrival.tokens:
            chunk |= of_answer(texts, arrival.tokens, arrival.logprobs)
        if arrival.reason is None:
            return chunk
        if arrival.reason not in FINISH_REASONS:
            eos_ids = self._service.limits.eos_ids
            raise contradictions.ended(request, arrival.reason, FORM, eos_ids)
        reason = FINISH_REASONS[Reason(arrival.reason)]
        self._finished[request.index] = reason
        if request.sampling.prompt_logprobs is not None:
            told = prompt_logprobs(texts, request).make()
            chunk["engine_data"] = {"prompt_logprobs": list(chain.from_iterable(told))}
        return {**chunk, "finish_reason": reason, "completion_usage": self._usage()}

    def _usage(self) -> dict[str, Any]:
        """So far, of all choices: the prompt counts once, and so does what each of them found cached."""
        prompt_tokens = len(self._requests[0].prompt)
        n_tokens = sum(request.n_tokens for request in self._requests)
        cached = min(request.cached_tokens for request in self._requests)
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": n_tokens,
            "total_tokens": prompt_tokens + n_tokens,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def end(self, outcome: str) -> None:
        """Cancels what is still computed; `outcome` is what the metrics call that, "abort" or "error"."""
        self._ended.set()
        self._mailbox.fail(ClientGone())
        for request in self._requests:
            self._service.tracker.cancel(request)
            reason = self._finished.get(request.index, outcome)
            self._service.metrics.on_finished(request, reason, time.perf_counter())
