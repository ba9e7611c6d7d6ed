"""What hostile clients do to a server: each attack asks until it is ended."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable

from fuzz.stream_cases import draw_case
from fuzz.wire import Malformed, read_response

MIB = 1 << 20


class Peer:
    """Where the server is, and the key to it."""

    def __init__(self, host: str, port: int, key: str) -> None:
        self.host, self.port, self.key = host, port, key

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port, limit=MIB)

    def head(self, length: int, key: str | None = None) -> bytes:
        return (
            f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key or self.key}\r\n"
            f"content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
        ).encode()

    def post(self, body: object, key: str | None = None) -> bytes:
        content = json.dumps(body).encode()
        return self.head(len(content), key) + content


Attack = Callable[[Peer, Counter[str]], Awaitable[None]]


async def asked(peer: Peer, request: bytes, counts: Counter[str]) -> None:
    """One request over a connection of its own, to its end."""
    try:
        reader, writer = await peer.connect()
        try:
            writer.write(request)
            answer = await read_response(reader)
            counts[str(answer.status) if answer else "closed"] += 1
        finally:
            writer.close()
    except (OSError, Malformed, asyncio.IncompleteReadError):
        counts["closed"] += 1


async def again(peer: Peer, request: bytes, counts: Counter[str], at_once: int = 1) -> None:
    async def one() -> None:
        while True:
            await asked(peer, request, counts)

    await asyncio.gather(*(one() for _ in range(at_once)))


async def long_prompts(peer: Peer, counts: Counter[str]) -> None:
    rng = random.Random(1)
    prompts = [[rng.randrange(10, 1000) for _ in range(2000)] for _ in range(128)]
    await again(peer, peer.post({"prompt": prompts, "max_tokens": 8}), counts)


async def long_answers(peer: Peer, counts: Counter[str]) -> None:
    await again(peer, peer.post({"prompt": "x", "n": 128, "max_tokens": 1500, "ignore_eos": True}), counts)


async def long_stops(peer: Peer, counts: Counter[str]) -> None:
    stop = ["a" * 2000 + "b"]
    await again(
        peer, peer.post({"prompt": "a", "n": 8, "max_tokens": 1500, "ignore_eos": True, "stop": stop}), counts
    )


async def longest_stops(peer: Peer, counts: Counter[str]) -> None:
    stop = ["a" * 8191 + "b"] * 4
    await again(
        peer, peer.post({"prompt": "a", "n": 8, "max_tokens": 1500, "ignore_eos": True, "stop": stop}), counts
    )


async def many_arrays(peer: Peer, counts: Counter[str]) -> None:
    content = b'{"prompt": [' + b"[]," * (8 * MIB // 3 - 100) + b"[]]}"
    await again(peer, peer.head(len(content)) + content, counts)


async def half_bodies(peer: Peer, counts: Counter[str]) -> None:
    async def one() -> None:
        while True:
            try:
                reader, writer = await peer.connect()
                writer.write(peer.head(8 * MIB) + b" " * (7 * MIB))
                answer = await read_response(reader)
                counts[str(answer.status) if answer else "closed"] += 1
                writer.close()
            except (OSError, Malformed):
                counts["closed"] += 1

    await asyncio.gather(*(one() for _ in range(60)))


async def silent_connections(peer: Peer, counts: Counter[str]) -> None:
    kept = []
    while True:
        try:
            kept.append(await peer.connect())
            counts["opened"] += 1
        except OSError:
            counts["refused"] += 1
        if len(kept) > 5000:
            kept.pop(0)[1].close()
            await asyncio.sleep(0.001)


async def wrong_keys(peer: Peer, counts: Counter[str]) -> None:
    await again(peer, peer.post({"prompt": "x"}, key="wrong"), counts, at_once=32)


async def garbage(peer: Peer, counts: Counter[str]) -> None:
    async def one(number: int) -> None:
        seed = number << 32
        while True:
            seed += 1
            await asked(peer, b"".join(draw_case(seed).pieces) + b"\0\r\n\r\n", counts)

    await asyncio.gather(*(one(number) for number in range(16)))


async def trailers(peer: Peer, counts: Counter[str]) -> None:
    head = peer.head(0).replace(b"content-length: 0", b"transfer-encoding: chunked")
    await again(peer, head + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 100_000, counts, at_once=4)


async def unread_streams(peer: Peer, counts: Counter[str]) -> None:
    body = {"prompt": "x", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    while True:
        opened = []
        for _ in range(64):
            try:
                _, writer = await peer.connect()
                writer.transport.pause_reading()  # type: ignore[attr-defined]
                writer.write(peer.post(body))
                opened.append(writer)
                counts["opened"] += 1
            except OSError:
                counts["refused"] += 1
        await asyncio.sleep(3)
        for writer in opened:
            writer.close()


async def left_at_once(peer: Peer, counts: Counter[str]) -> None:
    request = peer.post({"prompt": "x" * 500, "n": 16, "max_tokens": 500, "ignore_eos": True, "stream": True})
    while True:
        try:
            _, writer = await peer.connect()
            writer.write(request)
            await asyncio.sleep(0.02)
            writer.close()
            counts["left"] += 1
        except OSError:
            counts["refused"] += 1


ATTACKS: dict[str, tuple[str, Attack | None]] = {
    "none": ("nobody is hostile", None),
    "long_prompts": ("128 prompts of 2,000 tokens in a request, again and again", long_prompts),
    "long_answers": ("128 answers of 1,500 tokens, likewise", long_answers),
    "long_stops": ("8 answers with a stop string of 2,001 characters that nearly matches", long_stops),
    "longest_stops": ("8 answers with 32 KB of stop strings", longest_stops),
    "many_arrays": ("8 MiB of empty arrays as a prompt, one body after the other", many_arrays),
    "half_bodies": ("60 connections, each with 7 of 8 MiB", half_bodies),
    "silent": ("connections that say nothing, up to 5,000 of them", silent_connections),
    "wrong_keys": ("32 connections that try keys", wrong_keys),
    "garbage": ("16 connections with what is nearly HTTP", garbage),
    "trailers": ("4 connections with 600 kB of trailers", trailers),
    "unread_streams": ("64 streams that nobody reads, new ones every 3 s", unread_streams),
    "left_at_once": ("streams of 16 answers whose client leaves after 20 ms, without a pause", left_at_once),
}
