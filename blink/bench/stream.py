"""Reads a streamed completion from the bytes that arrived and the times at which they did.

HTTP/1.1 framing after RFC 9112 (sections 6 and 7.1), events after the HTML standard's server-sent events,
their content after OpenAI's API reference. Runs after the stream has ended: nothing but a time stamp is taken
while streams run (B3).
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

END_OF_CHUNKS = b"\r\n0\r\n\r\n"  # never in an event: JSON escapes line ends
EVENT_END = re.compile(rb"\r?\n\r?\n")
MESSAGE_LENGTH = 160  # of an error that is reported


@dataclass
class Reading:
    """A response, read. `error` says why it is not a complete stream."""

    stamps: list[int] = field(default_factory=list)  # ns, of chunks that have a choice
    tokens: int | None = None  # by `usage`
    error: str | None = None


@dataclass(frozen=True)
class Head:
    status: int
    headers: dict[bytes, bytes]
    size: int

    @property
    def chunked(self) -> bool:
        return b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()

    @property
    def body_size(self) -> int | None:
        length = self.headers.get(b"content-length")
        return None if length is None else int(length)

    @property
    def reusable(self) -> bool:
        return self.headers.get(b"connection", b"").lower() != b"close"


def parse_head(data: bytes) -> Head | None:
    """None while the header is incomplete. Raises ValueError when it is none of HTTP/1.1."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return None
    first, *lines = data[:end].split(b"\r\n")
    words = first.split(b" ", 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise ValueError(f"no HTTP/1.1 response: {first[:60]!r}")
    pairs = (line.partition(b":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return Head(int(words[1]), headers, end + 4)


def is_complete(head: Head, received: int, tail: bytes) -> bool:
    """Whether a response of `received` bytes that end with `tail` has ended."""
    if head.chunked:
        return tail.endswith(END_OF_CHUNKS)
    return head.body_size is not None and received >= head.size + head.body_size


def read_stream(reads: list[tuple[int, bytes]]) -> Reading:
    """`reads` are (ns, bytes) in the order in which they came; the last one ended the response or the
    connection.
    """
    raw = b"".join(data for _, data in reads)
    try:
        head = parse_head(raw)
        if head is None:
            return Reading(error="connection closed before a response")
        pieces, complete = _pieces(raw, head)
    except ValueError as error:
        return Reading(error=str(error))
    body = b"".join(raw[start:end] for start, end in pieces)
    if head.status != 200:
        return Reading(error=f"HTTP {head.status}: {_message(body)}")
    reading = Reading()
    done = _read_events(body, reading, _Clock(reads, pieces))
    if reading.error is None and not (complete and done):
        reading.error = f"stream ended {'without [DONE]' if complete else 'by a lost connection'}"
    return reading


def _pieces(raw: bytes, head: Head) -> tuple[list[tuple[int, int]], bool]:
    """Where the body's parts lie in `raw`, and whether the last one is there. Raises ValueError."""
    if not head.chunked:
        size = head.body_size
        return [(head.size, len(raw))], size is None or len(raw) >= head.size + size
    pieces: list[tuple[int, int]] = []
    at = head.size
    while (line := raw.find(b"\r\n", at)) >= 0:
        size = int(raw[at:line].split(b";")[0], 16)
        if size == 0:
            return pieces, True
        pieces.append((line + 2, min(line + 2 + size, len(raw))))
        at = line + 4 + size
    return pieces, False


class _Clock:
    """When the byte at a position of the body arrived."""

    def __init__(self, reads: list[tuple[int, bytes]], pieces: list[tuple[int, int]]) -> None:
        self._times = [time for time, _ in reads]
        self._ends = list(accumulate(len(data) for _, data in reads))
        self._pieces = pieces
        self._starts = [0, *accumulate(end - start for start, end in pieces)][:-1]

    def at(self, position: int) -> int:
        piece = bisect_right(self._starts, position) - 1
        raw = self._pieces[piece][0] + position - self._starts[piece]
        return self._times[bisect_left(self._ends, raw + 1)]


def _read_events(body: bytes, reading: Reading, clock: _Clock) -> bool:
    """Fills `reading`. Returns whether [DONE] came."""
    start = 0
    for match in EVENT_END.finditer(body):
        event, start = body[start : match.start()], match.end()
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if data == b"[DONE]":
            return True
        if not data:
            continue  # a comment, such as a keep-alive
        try:
            chunk = json.loads(data)
        except ValueError:
            reading.error = f"an event is not JSON: {data[:60]!r}"
            return False
        if "error" in chunk:
            reading.error = f"error in the stream: {_text(chunk)}"
            return False
        if chunk.get("choices"):
            reading.stamps.append(clock.at(match.end() - 1))
        if usage := chunk.get("usage"):
            reading.tokens = int(usage["completion_tokens"])
    return False


def _message(body: bytes) -> str:
    try:
        return _text(json.loads(body))
    except (ValueError, AttributeError):
        return body[:MESSAGE_LENGTH].decode(errors="replace")


def _text(answer: dict[str, Any]) -> str:
    error = answer.get("error", answer)
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:MESSAGE_LENGTH]
