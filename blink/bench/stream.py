"""Reads a streamed completion from the bytes that arrived and the times at which they did.

HTTP/1.1 framing after RFC 9112 (sections 6 and 7.1), events after the HTML standard's server-sent events,
their content after OpenAI's API reference. Answers that nobody needs before the window is over are read after
it: nothing but a time stamp is taken while streams run (B3).
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

END_OF_CHUNKS = b"\r\n0\r\n\r\n"  # never in an event: JSON escapes line ends
EVENT_END = re.compile(rb"\r?\n\r?\n")
MESSAGE_LENGTH = 160  # of an error that is reported


@dataclass
class Reading:
    """A response, read. `error` says why it is not a complete stream."""

    stamps: list[int] = field(default_factory=list)  # ns, of chunks that have a choice
    texts: list[str] = field(default_factory=list)  # of those chunks
    token_ids: list[int] = field(default_factory=list)  # where the server was asked for them, and gives them
    tokens: int | None = None  # by `usage`, like the two below
    prompt_tokens: int | None = None
    cached_tokens: int | None = None  # of the prompt
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
    reader = StreamReader()
    for ns, data in reads:
        reader.feed(ns, data)
    return reader.finish()


class StreamReader:
    """Reads a response piece by piece: `feed` it what was read, then `finish`."""

    def __init__(self) -> None:
        self._reading = Reading()
        self._head: Head | None = None
        self._raw = b""  # what came and is not understood yet
        self._left = 0  # of a chunk, what has not come
        self._received = 0  # of a body that is not chunked
        self._ended = False  # the response
        self._done = False  # [DONE] came
        self._body = b""  # whose event is not complete

    def feed(self, ns: int, data: bytes) -> None:
        """The next bytes of the response, and when they came."""
        if self._reading.error is not None:
            return
        self._raw += data
        try:
            if self._head is None:
                self._head = parse_head(self._raw)
                if self._head is None:
                    return
                self._raw = self._raw[self._head.size :]
            self._body += self._unframed(self._head)
        except ValueError as error:
            self._reading.error = str(error)
            return
        if self._head.status == 200 and not self._done:
            self._read_events(ns)

    def finish(self) -> Reading:
        """The response has ended, or the connection."""
        reading, head = self._reading, self._head
        if reading.error is not None:
            return reading
        if head is None:
            reading.error = "connection closed before a response"
        elif head.status != 200:
            reading.error = f"HTTP {head.status}: {_message(self._body)}"
        elif not (self._ended and self._done):
            reading.error = f"stream ended {'without [DONE]' if self._ended else 'by a lost connection'}"
        return reading

    def _unframed(self, head: Head) -> bytes:
        """The bytes of the body in what came. Raises ValueError where a chunk's size is none."""
        raw = self._raw
        if not head.chunked:
            self._raw = b""
            self._received += len(raw)
            self._ended = head.body_size is None or self._received >= head.body_size
            return raw
        at, pieces = 0, []
        while not self._ended:
            if self._left:
                pieces.append(raw[at : at + self._left])
                at += len(pieces[-1])
                self._left -= len(pieces[-1])
                if self._left:
                    break
            line = raw.find(b"\r\n", at)
            if line == at:  # the end of a chunk
                at += 2
                line = raw.find(b"\r\n", at)
            if line < 0:
                break
            self._left = int(raw[at:line].split(b";")[0], 16)
            self._ended = self._left == 0
            at = line + 2
        self._raw = raw[at:]
        return b"".join(pieces)

    def _read_events(self, ns: int) -> None:
        body, start = self._body, 0
        for match in EVENT_END.finditer(body):
            event, start = body[start : match.start()], match.end()
            self._read_event(event, ns)
            if self._done or self._reading.error is not None:
                break
        self._body = body[start:]

    def _read_event(self, event: bytes, ns: int) -> None:
        data = b"\n".join(line[5:].strip() for line in event.splitlines() if line.startswith(b"data:"))
        if not data:
            return  # a comment, such as a keep-alive
        if data == b"[DONE]":
            self._done = True
            return
        reading = self._reading
        try:
            chunk = json.loads(data)
        except ValueError:
            reading.error = f"an event is not JSON: {data[:60]!r}"
            return
        if "error" in chunk:
            reading.error = f"error in the stream: {_text(chunk)}"
            return
        for choice in (chunk.get("choices") or ())[:1]:
            if _read_choice(choice, reading):
                reading.stamps.append(ns)
        if usage := chunk.get("usage"):
            reading.tokens = int(usage["completion_tokens"])
            reading.prompt_tokens = usage.get("prompt_tokens")
            reading.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")


def _read_choice(choice: dict[str, Any], reading: Reading) -> bool:
    """Adds its text and tokens. False for the first chunk of a chat, which has a role and no token yet."""
    delta = choice.get("delta")
    text = choice.get("text") if delta is None else delta.get("content")
    token_ids = choice.get("token_ids") or ()
    if delta and delta.get("role") and not text and not token_ids and not choice.get("finish_reason"):
        return False
    reading.texts.append(text or "")
    reading.token_ids += token_ids
    return True


def _message(body: bytes) -> str:
    try:
        return _text(json.loads(body))
    except (ValueError, AttributeError):
        return body[:MESSAGE_LENGTH].decode(errors="replace")


def _text(answer: dict[str, Any]) -> str:
    error = answer.get("error", answer)
    message = error.get("message", error) if isinstance(error, dict) else error
    return str(message)[:MESSAGE_LENGTH]
