"""What Dynamo's frontend is told of an answer: tokens, log-probabilities, usage."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest
from fixtures import *  # noqa: F403
from harness import StartBackend
from limits import WAIT_S
from mock_backend import MockBackend
from scripted_answers import bits_of

from blink.dynamo.call import Call
from blink.dynamo.logprobs import of_answer
from nic_frontend.api.logprobs import TokenTexts
from nic_frontend.errors import ClientGone
from nic_frontend.options import FrontendOptions
from nic_frontend.ring.request import words_from
from nic_frontend.service import Service
from ringbuffer.words import pair_word

PROMPT = [5, 6, 7]
HALF = math.log(2)


def chunks_of(backend: MockBackend, model_dir: Path, **asked: Any) -> list[dict[str, Any]]:
    """What a worker passes on of the answer to a request."""
    service = Service(FrontendOptions(model_dir=model_dir, ring=backend.path, attach_timeout_s=WAIT_S))

    async def run() -> list[dict[str, Any]]:
        await service.start()
        call = Call(service, 64)
        found = [chunk async for chunk in call.chunks({"token_ids": PROMPT, **asked})]
        call.end("abort")
        await service.stop()
        return found

    try:
        return asyncio.run(run())
    finally:
        service.close()


def test_log_probabilities_go_with_their_tokens(start_backend: StartBackend, model_dir: Path) -> None:
    told = {"logprobs": 2, "prompt_logprobs": 1}
    chunks = chunks_of(start_backend(), model_dir, output_options=told, stop_conditions={"max_tokens": 3})
    assert [token for chunk in chunks for token in chunk["token_ids"]] == [4, 5, 6]
    own = [logprob for chunk in chunks for logprob in chunk.get("log_probs", [])]
    assert own == pytest.approx([-0.25, -0.5, -0.75])
    likeliest = [entries for chunk in chunks for entries in chunk.get("top_logprobs", [])]
    ranked = [
        [(entry["rank"], entry["token_id"], entry["logprob"]) for entry in entries] for entries in likeliest
    ]
    assert ranked == [
        [(1, token, pytest.approx(value)), (2, token + 1, pytest.approx(value - HALF))]
        for token, value in zip((4, 5, 6), (-0.25, -0.5, -0.75), strict=True)
    ]
    assert all(bytes(entry["bytes"]).decode() == entry["token"] for entries in likeliest for entry in entries)
    first, *others = chunks[-1]["engine_data"]["prompt_logprobs"]
    assert first is None
    assert [entries[str(token)]["logprob"] for token, entries in zip(PROMPT[1:], others, strict=True)] == (
        pytest.approx([-0.5, -0.75])
    )


def test_nothing_is_told_unasked(start_backend: StartBackend, model_dir: Path) -> None:
    chunks = chunks_of(start_backend(), model_dir, stop_conditions={"max_tokens": 3})
    names = {name for chunk in chunks for name in chunk}
    assert names == {"token_ids", "index", "finish_reason", "completion_usage"}


def test_a_call_that_ends_while_its_grammar_is_compiled(start_backend: StartBackend, model_dir: Path) -> None:
    """Nobody could cancel it later, so it takes no slot."""
    backend = start_backend()
    service = Service(FrontendOptions(model_dir=model_dir, ring=backend.path, attach_timeout_s=WAIT_S))
    asked = {"token_ids": PROMPT, "sampling_options": {"guided_decoding": {"json": {"type": "integer"}}}}

    async def run() -> None:
        await service.start()
        call = Call(service, 64)
        chunks = call.chunks(asked)
        first = asyncio.ensure_future(anext(chunks))
        await asyncio.sleep(0)  # it has begun, and waits for the compiler's thread
        call.end("abort")
        with pytest.raises(ClientGone):
            await first
        await service.stop()

    try:
        asyncio.run(run())
    finally:
        service.close()
    assert not backend.accepted


def test_a_token_that_is_none_of_the_likeliest_comes_behind_them() -> None:
    words = words_from(halves(pair(0, -5.0), pair(8, -0.5), pair(9, -1.5)), 3)
    told = of_answer(TokenTexts(lambda token: bytes([token])), [7], words)
    assert told["log_probs"] == [-5.0]
    ranks = {entry["token_id"]: entry["rank"] for entry in told["top_logprobs"][0]}
    assert ranks == {7: 3, 8: 1, 9: 2}


def pair(first: int, value: float) -> int:
    return pair_word(first, bits_of(value))


def halves(*words: int) -> list[int]:
    return [half for word in words for half in (word & 0xFFFFFFFF, word >> 32)]
