"""Sends completions over HTTP/1.1 connections of its own and notes when each read returned.

A read costs one time stamp and one append, so that a core follows some ten thousands of tokens a second; the
bytes are understood later (stream.py), but for those of conversations.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from typing import Any, cast

import numpy as np

from blink.bench.records import UNFINISHED, Outcome, Target
from blink.bench.stream import (
    END_OF_CHUNKS,
    Head,
    Reading,
    StreamReader,
    is_complete,
    parse_head,
    read_stream,
)

IDLE_S = 2.0  # an idle connection is used again only within this: servers close theirs after 5 s and more
CONNECT_S = 30.0


class Connection(asyncio.Protocol):
    """One exchange after another. `reads` are the current response's (ns, bytes)."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, bytes]] = []
        self.idle_since = 0.0
        self.closed = False
        self._head: Head | None = None
        self._received = 0
        self._done: asyncio.Future[None] | None = None
        self._reader: StreamReader | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has its methods, not its base

    def exchange(self, request: bytes, reader: StreamReader | None = None) -> asyncio.Future[None]:
        """Sends the request. The future is done when the response has ended, or the connection. `reader` is
        fed while it comes.
        """
        self.reads, self._head, self._received, self._reader = [], None, 0, reader
        self._done = asyncio.get_running_loop().create_future()
        if self.closed:  # the server hung up before it was asked anything
            self._finish()
        else:
            self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self.reads.append((time.monotonic_ns(), data))
        self._received += len(data)
        if self._reader is not None:
            self._reader.feed(*self.reads[-1])
        head = self._head
        if head is not None and head.chunked and len(data) >= len(END_OF_CHUNKS):
            if data.endswith(END_OF_CHUNKS):
                self._finish()
            return
        self._look()

    def _look(self) -> None:
        """The slow path: the first read, and reads that may hold a part of the end only."""
        raw = b"".join(data for _, data in self.reads)
        try:
            self._head = self._head or parse_head(raw)
        except ValueError:
            self.close()
            self._finish()
            return
        if self._head is not None and is_complete(self._head, self._received, raw):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._finish()

    def _finish(self) -> None:
        if self._done is not None and not self._done.done():
            self._done.set_result(None)

    @property
    def accepted(self) -> bool:
        return self._head is not None and self._head.status == 200

    @property
    def reusable(self) -> bool:
        return not self.closed and self._head is not None and self._head.reusable

    def close(self) -> None:
        self.closed = True
        self._transport.abort()


class Client:
    """Requests to one server; as many connections as there are open requests, idle ones used again.

    `fields` are fields that every request has, beyond those of a greedy stream.
    """

    def __init__(self, target: Target, fields: dict[str, Any]) -> None:
        self._target = target
        self._idle: deque[Connection] = deque()
        self._unread: list[tuple[Outcome, list[tuple[int, bytes]]]] = []
        self._read: list[Outcome] = []
        key = f"authorization: Bearer {target.api_key}\r\n" if target.api_key else ""
        self._head = (
            f"POST {target.path} HTTP/1.1\r\nhost: {target.host}:{target.port}\r\n{key}"
            "content-type: application/json\r\naccept: text/event-stream\r\ncontent-length: "
        )
        fixed = {
            "model": target.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            **({"ignore_eos": True} if target.ignore_eos else {}),
            **fields,
        }
        self._fields = json.dumps(fixed)[:-1]

    def request(self, prompt: str, n_output: int) -> bytes:
        """`prompt` is the field that holds it, in JSON."""
        body = f'{self._fields},"max_tokens":{n_output},{prompt}}}'.encode()
        return f"{self._head}{len(body)}\r\n\r\n".encode() + body

    async def send(
        self, prompt: str, n_output: int, index: int, due_ns: int | None = None, stream: int | None = None
    ) -> bool:
        """One request from beginning to end; whether the server took it. What came is read by `outcomes`.

        `due_ns`: of an open loop. `stream`: of a closed one.
        """
        outcome, reads, accepted = await self._exchange(prompt, n_output, index, due_ns, None)
        outcome.stream = stream
        self._unread.append((outcome, reads))
        return accepted

    async def ask(self, prompt: str, n_output: int, index: int, turn: int) -> tuple[Outcome, Reading]:
        """One turn of a conversation. Its answer belongs into the next question, so it is read while it
        comes: read at its end, it would be late by the answers that ended with it.
        """
        reader = StreamReader()
        outcome, _, _ = await self._exchange(prompt, n_output, index, None, reader)
        outcome.turn = turn
        self._read.append(outcome)
        reading = reader.finish()
        self._fill(outcome, reading)
        return outcome, reading

    async def _exchange(
        self, prompt: str, n_output: int, index: int, due_ns: int | None, reader: StreamReader | None
    ) -> tuple[Outcome, list[tuple[int, bytes]], bool]:
        """The clock starts before the request is written, and before the connection is made where none is
        free (B3).
        """
        request = self.request(prompt, n_output)
        sent = time.monotonic_ns()
        nothing = np.empty(0, dtype=np.int64)
        due = sent if due_ns is None else due_ns
        outcome = Outcome(index, None, due, sent, n_output, nothing, 0, False, "cut off")
        connection = None
        try:
            connection = await self._connect()
            await connection.exchange(request, reader)
            outcome.error = None
        except asyncio.CancelledError:
            outcome.error = UNFINISHED
        except (OSError, TimeoutError) as error:
            outcome.error = f"cannot connect: {error or 'timeout'}"
        if connection is None:
            return outcome, [], False
        if outcome.error is None and connection.reusable:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        return outcome, connection.reads, connection.accepted

    async def _connect(self) -> Connection:
        while self._idle:  # the oldest first: it spreads over the servers that share a port
            connection = self._idle.popleft()
            if not connection.closed and time.monotonic() - connection.idle_since < IDLE_S:
                return connection
            connection.close()
        loop = asyncio.get_running_loop()
        made = loop.create_connection(Connection, self._target.host, self._target.port)
        return (await asyncio.wait_for(made, CONNECT_S))[1]

    def outcomes(self) -> list[Outcome]:
        """What came of the requests since the last call."""
        unread, self._unread = self._unread, []
        read, self._read = self._read, []
        for outcome, reads in unread:
            self._fill(outcome, read_stream(reads))
        return [*read, *(outcome for outcome, _ in unread)]

    def _fill(self, outcome: Outcome, reading: Reading) -> None:
        """What came of a request, from what was read."""
        outcome.stamps = np.array(reading.stamps, dtype=np.int64)
        outcome.has_usage = reading.tokens is not None
        outcome.tokens = len(reading.stamps) if reading.tokens is None else reading.tokens
        outcome.prompt_tokens, outcome.cached_tokens = reading.prompt_tokens, reading.cached_tokens
        if outcome.error is None:
            outcome.error = reading.error
        is_short = self._target.ignore_eos and outcome.tokens < outcome.expected_tokens
        if outcome.error is None and (is_short or not reading.stamps):
            outcome.error = "fewer tokens than max_tokens"

    def close(self) -> None:
        while self._idle:
            self._idle.popleft().close()
