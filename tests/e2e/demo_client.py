"""Asks a running server many things at once, and judges the answers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from demo_model.tasks import Item, check, sample

T = TypeVar("T")
Body = dict[str, Any]
TIMEOUT_S = 400.0  # of a request: the tests of RDMA run in an emulated machine, which is slow


@dataclass(frozen=True)
class Reply:
    """The answer of one choice, from a stream or whole. `tokens` counts those of the answer."""

    status: int
    text: str = ""
    finish_reason: str | None = None
    tokens: int = 0
    pieces: int = 1  # events that carried text


def items(task: str, n: int, seed: int = 7) -> list[Item]:
    """Held-out items of one task, the same for the same seed."""
    rng = random.Random(f"{task} {seed}")
    return [sample(task, rng, split="heldout") for _ in range(n)]


def completion(item: Item, **fields: Any) -> Body:
    """Greedy, with room for any answer."""
    return {"prompt": item.prompt, "temperature": 0, "max_tokens": None, **room(item), **fields}


def chat(item: Item, **fields: Any) -> Body:
    return {"messages": item.messages, "temperature": 0, **fields}


def room(item: Item) -> Body:
    """A completion's answer has 16 tokens unless it asks for more; five bytes a token is far too many."""
    return {"max_tokens": 16 + len(item.answer.encode()) * 2 if len(item.answer) < 500 else 1600}


def right(chosen: Sequence[Item], replies: Sequence[Reply]) -> list[bool]:
    return [check(item, reply.text) for item, reply in zip(chosen, replies, strict=True)]


def ask(url: str, bodies: Sequence[Body], *, clients: int = 64) -> list[Reply]:
    """All requests, at most `clients` at once; streams are put together."""

    async def run() -> list[Reply]:
        gate = asyncio.Semaphore(clients)
        async with new_client(url) as client:

            async def one(body: Body) -> Reply:
                async with gate:
                    return await fetch(client, body)

            return await asyncio.gather(*(one(body) for body in bodies))

    return asyncio.run(run())


def new_client(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, timeout=TIMEOUT_S, limits=limits)


async def fetch(client: httpx.AsyncClient, body: Body) -> Reply:
    path = "/v1/chat/completions" if "messages" in body else "/v1/completions"
    if body.get("stream"):
        return await read_stream(client, path, body)
    response = await client.post(path, json=body)
    if response.status_code != 200:
        return Reply(response.status_code, response.text)
    answer = response.json()
    choice = answer["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    return Reply(200, text, choice["finish_reason"], answer["usage"]["completion_tokens"])


async def read_stream(client: httpx.AsyncClient, path: str, body: Body) -> Reply:
    """Raises AssertionError when the stream does not end as it should."""
    text, reason, tokens, pieces, last = "", None, 0, 0, ""
    body = {**body, "stream_options": {"include_usage": True}}
    async with client.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            return Reply(response.status_code, (await response.aread()).decode())
        async for line in response.aiter_lines():
            if not line or line.startswith(":"):  # a comment, which keeps a silent connection open
                continue
            last = line.removeprefix("data: ")
            if last == "[DONE]":
                break
            event = json.loads(last)
            assert "error" not in event, event
            for choice in event["choices"]:
                piece = choice["delta"].get("content", "") if "delta" in choice else choice["text"]
                text, pieces = text + (piece or ""), pieces + bool(piece)
                reason = choice["finish_reason"] or reason
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
    assert last == "[DONE]", f"the stream ended with {last!r}"
    return Reply(200, text, reason, tokens, pieces)


def together(*work: Coroutine[Any, Any, T]) -> list[T]:
    async def run() -> list[T]:
        return await asyncio.gather(*work)

    return asyncio.run(run())
