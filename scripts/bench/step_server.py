#!/usr/bin/env python3
"""A server of known latencies, to judge load generators by: every stream gets a token at each tick.

    python scripts/bench/step_server.py --port 8000 --step-ms 10 --first-ms 50

Answers /v1/models and streamed /v1/completions of token ids, as a batch decoding on a GPU would: a request's
first token comes with the first tick at least --first-ms after its arrival, each further one a tick later.
Prints its port when it listens, and at SIGTERM what it did: requests, tokens, mean and worst lateness of its
ticks.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"cmpl-1","object":"text_completion","created":1,"model":"step","choices":[{"index":0,'
    b'"text":" word","logprobs":null,"finish_reason":%s}],"usage":null}\n\n'
)
END = b"data: [DONE]\n\n"


def framed(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


MIDDLE, LAST = framed(EVENT % b"null"), framed(EVENT % b'"length"')


class Clock:
    """The ticks, and the streams that wait for them."""

    def __init__(self, step_s: float, first_s: float) -> None:
        self.step_s, self.first_s = step_s, first_s
        self.streams: set[Stream] = set()
        self.requests = self.tokens = 0
        self.late: list[float] = []

    async def run(self) -> None:
        due = time.monotonic()
        while True:
            due += self.step_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            now = time.monotonic()
            self.late.append(now - due)
            for stream in list(self.streams):
                if stream.first_due <= now:
                    stream.step()

    def report(self) -> dict[str, float]:
        return {
            "requests": self.requests,
            "tokens": self.tokens,
            "ticks_late_mean_ms": sum(self.late) / max(1, len(self.late)) * 1e3,
            "ticks_late_max_ms": max(self.late, default=0.0) * 1e3,
        }


class Stream(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.data = b""
        self.sent = self.wanted = self.prompt = 0
        self.first_due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        self.clock.streams.discard(self)

    def data_received(self, data: bytes) -> None:
        self.data += data
        end = self.data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self.data[:end].lower()
        size = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        if len(self.data) < end + 4 + size:
            return
        body, self.data = self.data[end + 4 : end + 4 + size], self.data[end + 4 + size :]
        if head.startswith(b"get"):
            self.answer({"object": "list", "data": [{"id": "step", "object": "model"}]})
        else:
            self.begin(json.loads(body))

    def answer(self, value: object) -> None:
        text = json.dumps(value).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        self.transport.write(head.encode() + text)

    def begin(self, request: dict[str, object]) -> None:
        self.clock.requests += 1
        # type: ignore[arg-type,call-overload]
        self.prompt, self.sent, self.wanted = len(request["prompt"]), 0, int(request["max_tokens"])
        self.first_due = time.monotonic() + self.clock.first_s
        self.transport.write(HEAD)
        self.clock.streams.add(self)

    def step(self) -> None:
        self.sent += 1
        self.clock.tokens += 1
        if self.sent < self.wanted:
            self.transport.write(MIDDLE)
            return
        self.clock.streams.discard(self)
        usage = {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.sent,
            "total_tokens": self.prompt + self.sent,
        }
        last = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "step"}
        event = b"data: %s\n\n" % json.dumps({**last, "choices": [], "usage": usage}).encode()
        self.transport.write(LAST + framed(event + END) + b"0\r\n\r\n")


async def serve(port: int, clock: Clock) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Stream(clock), "127.0.0.1", port)
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    ticks = asyncio.create_task(clock.run())
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended.wait()
    ticks.cancel()
    server.close()
    print(json.dumps(clock.report()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--step-ms", type=float, default=10.0)
    parser.add_argument("--first-ms", type=float, default=50.0)
    arguments = parser.parse_args()
    uvloop.run(serve(arguments.port, Clock(arguments.step_ms / 1e3, arguments.first_ms / 1e3)))


if __name__ == "__main__":
    main()
