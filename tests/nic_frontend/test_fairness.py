"""However much has arrived for one call, other calls get their turn: counted in tokens, not in time."""

from __future__ import annotations

import asyncio
import itertools
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sse import parse as parse_events

from nic_frontend.abi import EVENT_TOKENS_MAX
from nic_frontend.api.call import Call
from nic_frontend.api.choices import BURST_TOKENS
from nic_frontend.api.job import Job
from nic_frontend.api.limits import Limits
from nic_frontend.api.logprobs import TokenTexts
from nic_frontend.api.parameters import parse
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.text_answer import TextAnswer
from nic_frontend.observe.metrics import Metrics
from nic_frontend.ring.request import Arrival, Mailbox, Request
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.text.tokenizer import Tokenizer
from ringbuffer.abi import Reason

N = 16  # choices
NO_TEXTS = TokenTexts(lambda token: b"")
BURSTS = 8  # events of each


class Text:
    """A detokenizer that counts what it was given."""

    fed = 0

    def feed(self, token: int) -> str:
        Text.fed += 1
        return "a"

    def flush(self) -> str:
        return ""


async def call_with_everything_at_once(body: dict[str, Any]) -> tuple[list[int], bytes]:
    """Runs a call for which all tokens have arrived; what was handled between two turns of another task."""
    limits = Limits(1 << 20, 1 << 20, 1 << 20, 600, 128)
    request = checked({"prompt": "x", **body}, CompletionRequest)
    parameters = parse(request, limits, max_tokens=request.max_tokens, max_tokens_field="max_tokens")
    prompt = np.array([5], dtype=np.uint32)
    job = Job(parameters, [prompt], "prompt", TextAnswer(False, "m", parameters, [""] * N, NO_TEXTS))
    mailbox = Mailbox(100)
    requests = [
        Request(i, prompt, parameters.of_choice(1, i, limits, "prompt"), mailbox, 0.0) for i in range(N)
    ]

    async def submit(submitted: list[Request]) -> None:
        for burst in range(BURSTS):
            for request in submitted:
                reason = int(Reason.LENGTH) if burst == BURSTS - 1 else None
                mailbox.put(Arrival(request, [7] * EVENT_TOKENS_MAX, reason))

    tokenizer = cast(Tokenizer, SimpleNamespace(detokenizer=lambda **_: Text()))
    tracker = cast(RequestTracker, SimpleNamespace(submit=submit, cancel=lambda request: None))
    call = Call(job, requests, tokenizer, tracker, Metrics())
    sent: list[bytes] = []

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def receive() -> Any:
        await asyncio.Event().wait()

    turns = [0]

    async def others() -> None:
        while True:
            turns.append(Text.fed)
            await asyncio.sleep(0)

    other = asyncio.create_task(others())
    await call.run(receive, send, time.perf_counter(), 60.0)
    turns.append(Text.fed)
    other.cancel()
    return turns, b"".join(sent)


@pytest.mark.parametrize("stream", [False, True])
def test_a_large_burst_is_handled_in_turns(stream: bool) -> None:
    """F10."""
    Text.fed = 0
    body: dict[str, Any] = {"stream": stream, "n": N, "stop": ["ab"], "max_tokens": BURSTS * EVENT_TOKENS_MAX}
    if stream:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    turns, sent = asyncio.run(call_with_everything_at_once(body))
    assert Text.fed == N * BURSTS * EVENT_TOKENS_MAX
    largest = max(after - before for before, after in itertools.pairwise(turns))
    assert largest < BURST_TOKENS + EVENT_TOKENS_MAX
    if stream:
        *chunks, _ = parse_events(sent.decode())
        for index in range(N):
            used = [chunk["usage"] for chunk in chunks if chunk["choices"][0]["index"] == index]
            assert [usage["completion_tokens"] for usage in used] == [
                *range(1, BURSTS * EVENT_TOKENS_MAX + 1)
            ]
    else:
        assert sent.count(b"a" * BURSTS * EVENT_TOKENS_MAX) == N
