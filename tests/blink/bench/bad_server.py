"""A server of OpenAI's API that does wrong on command."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
Writer = asyncio.StreamWriter
Behaviour = Callable[[Writer, int], Awaitable[None]]  # the connection, and max_tokens


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def event(value: object) -> bytes:
    return b"data: %s\n\n" % json.dumps(value).encode()


def text(n_tokens: int) -> bytes:
    """An event with the text of n tokens."""
    return event({"choices": [{"index": 0, "text": "w " * n_tokens, "finish_reason": None}], "usage": None})


def usage(n_tokens: int) -> bytes:
    return event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": n_tokens}})


DONE = b"data: [DONE]\n\n"
END = b"0\r\n\r\n"


async def good(writer: Writer, n: int, tokens_per_chunk: int = 1) -> None:
    writer.write(HEAD)
    for at in range(0, n, tokens_per_chunk):
        writer.write(chunk(text(min(tokens_per_chunk, n - at))))
        await asyncio.sleep(0.002)
    writer.write(chunk(usage(n) + DONE) + END)


async def packed(writer: Writer, n: int) -> None:
    await good(writer, n, tokens_per_chunk=4)


async def dropped(writer: Writer, n: int) -> None:
    """The connection is lost in the middle of an event."""
    writer.write(HEAD + chunk(text(1)) + chunk(text(1))[:9])
    await writer.drain()
    writer.transport.abort()


async def unfinished(writer: Writer, n: int) -> None:
    """A clean end of the response, without [DONE]."""
    writer.write(HEAD + chunk(text(1)) + END)


async def stalled(writer: Writer, n: int) -> None:
    writer.write(HEAD + chunk(text(1)))
    await asyncio.sleep(3600)


async def short(writer: Writer, n: int) -> None:
    writer.write(HEAD + chunk(text(1)) * (n - 2) + chunk(usage(n - 2) + DONE) + END)


async def busy(writer: Writer, n: int) -> None:
    body = json.dumps({"error": {"message": "all slots are taken", "type": "rate_limit"}}).encode()
    writer.write(b"HTTP/1.1 429 Too Many Requests\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


async def failing(writer: Writer, n: int) -> None:
    """An error in the middle of a stream."""
    writer.write(HEAD + chunk(text(1)) + chunk(event({"error": {"message": "the engine died"}}) + DONE) + END)


async def dribbled(writer: Writer, n: int) -> None:
    """A good stream, in writes that respect no boundary."""
    whole = HEAD + b"".join(chunk(text(1)) for _ in range(n)) + chunk(usage(n) + DONE) + END
    for at in range(0, len(whole), 7):
        writer.write(whole[at : at + 7])
        await asyncio.sleep(0)


async def no_http(writer: Writer, n: int) -> None:
    writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")


class BadServer:
    """Request i gets `behaviours[i % len]`, the first ones `good`: as many as the warm-up sends.

    A context manager; `url` is its address, `bodies` are the requests.
    """

    def __init__(self, *behaviours: Behaviour, warmup: int = 1) -> None:
        self._behaviours = behaviours
        self._warmup = warmup
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []  # of those
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> BadServer:
        self._thread.start()
        starting = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(starting, self._loop).result(5)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        async def end() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    models = json.dumps({"data": [{"id": "bad"}]}).encode()
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(models), models))
                    continue
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                body = json.loads(await reader.readexactly(size))
                turn = len(self.bodies) - self._warmup
                self.bodies.append(body)
                self.paths.append(head.split()[1].decode())
                behaviour = self._behaviours[turn % len(self._behaviours)] if turn >= 0 else good
                await behaviour(writer, int(body["max_tokens"]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()
