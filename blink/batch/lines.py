"""The lines of a batch's file: requests in the form of OpenAI's Batch API.

{"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {...}}

A file may be of any length: what is kept of it are some bytes for each line.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from blink.errors import CommandError
from nic_frontend.api.fields import article
from nic_frontend.http.json_text import read_json
from ringbuffer.model_file import shown

URLS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
ENVELOPE_BYTES = 64 << 10  # that a line may have beside its body
LONGEST_ID = 1000  # characters


class Line(NamedTuple):
    """One of the file; `number` counts from 1. One that is too long is cut off, and `is_whole` says so."""

    number: int
    content: bytes
    is_whole: bool


class Asked(NamedTuple):
    url: str
    body: bytes


class WrongLine(ValueError):
    """Why a line is no request."""


class _Request(msgspec.Struct):
    """What is in a line. `body` is JSON."""

    custom_id: Any = None
    method: Any = None
    url: Any = None
    body: msgspec.Raw = msgspec.Raw(b"null")

    @property
    def id(self) -> str | None:
        """Where it has one that it may have."""
        name = self.custom_id
        return name if isinstance(name, str) and 0 < len(name) <= LONGEST_ID else None


class _Streamed(msgspec.Struct):
    """Of a body, what it says about that, as JSON: all else, and that may be much, is passed over."""

    stream: msgspec.Raw = msgspec.Raw(b"null")


def _request(content: bytes) -> _Request:
    """Raises ValueError for what is no JSON object."""
    try:
        return msgspec.json.decode(content, type=_Request)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        found = read_json(content)  # which reads what is not strict JSON, too, and says what is wrong
    if not isinstance(found, dict):
        raise ValueError(f"it is {article(found)}")
    body = msgspec.Raw(json.dumps(found.pop("body", None)).encode())
    return _Request(found.get("custom_id"), found.get("method"), found.get("url"), body)


def lines_of(path: Path, longest: int) -> Iterator[Line]:
    """All but empty ones."""
    with path.open("rb") as file:
        number = 0
        while content := file.readline(longest + 1):
            number += 1
            is_whole = len(content) <= longest or content.endswith(b"\n")
            rest = content
            while not rest.endswith(b"\n") and (rest := file.readline(longest)):
                is_whole = False
            if number == 1:
                content = content.removeprefix(b"\xef\xbb\xbf")
            if content.strip():
                yield Line(number, content, is_whole)


def id_of(content: bytes) -> str | None:
    """A line's custom_id; None where it has none, or is no JSON."""
    try:
        return _request(content).id
    except ValueError:
        return None


def asked_by(line: Line, longest: int) -> Asked:
    """The request that a line is. Raises WrongLine."""
    if not line.is_whole:
        raise WrongLine(f"the line has more than {longest} bytes")
    try:
        found = _request(line.content)
    except ValueError as error:
        raise WrongLine(f"the line is no JSON object: {error}") from error
    if found.id is None:
        raise WrongLine(f"'custom_id' must be a string of 1 to {LONGEST_ID} characters")
    if found.method != "POST":
        raise WrongLine(f"'method' must be \"POST\", it is {shown(found.method)}")
    if found.url not in URLS:
        raise WrongLine(f"'url' must be one of {', '.join(URLS)}; it is {shown(found.url)}")
    body = bytes(found.body)
    if not body.lstrip().startswith(b"{"):
        raise WrongLine("'body' must be an object, the request's")
    if _streams(body):
        raise WrongLine("'body.stream': an answer in a file cannot be streamed; leave it out")
    return Asked(found.url, body)


def _streams(body: bytes) -> bool:
    """Whatever is wrong with it is told where it is answered, other values than true among that."""
    try:
        return bytes(msgspec.json.decode(body, type=_Streamed).stream) == b"true"
    except RecursionError:
        return False
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            return read_json(body).get("stream") is True
        except ValueError:
            return False


def key_of(custom_id: str | None, number: int) -> int:
    """64 bits that stand for a line: of its id, else of its number."""
    name = f"id {custom_id}" if custom_id is not None else f"line {number}"
    digest = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


class Index:
    """Which lines there are, and which of them have been answered.

    Raises CommandError where two have the same custom_id.
    """

    def __init__(self, path: Path, longest: int) -> None:
        keys, numbers = array("Q"), array("Q")
        for line in lines_of(path, longest):
            keys.append(key_of(id_of(line.content), line.number))
            numbers.append(line.number)
        found = np.array(keys, np.uint64)
        order = np.argsort(found, kind="stable")
        self._keys: NDArray[np.uint64] = found[order]
        if len(same := np.flatnonzero(self._keys[1:] == self._keys[:-1])):
            first, second = order[same[0]], order[same[0] + 1]
            raise CommandError(_same_ids(path, longest, numbers[first], numbers[second]))
        self._answered = np.zeros(len(found), np.bool_)

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def n_answered(self) -> int:
        return int(self._answered.sum())

    def _place(self, key: int) -> int | None:
        at = int(np.searchsorted(self._keys, np.uint64(key)))
        return at if at < len(self._keys) and int(self._keys[at]) == key else None

    def answered(self, key: int) -> bool:
        return (at := self._place(key)) is not None and bool(self._answered[at])

    def mark(self, key: int) -> bool:
        """Whether there is such a line, which is answered from now on."""
        if (at := self._place(key)) is None:
            return False
        self._answered[at] = True
        return True


def _same_ids(path: Path, longest: int, first: int, second: int) -> str:
    name = next(id_of(line.content) for line in lines_of(path, longest) if line.number == first)
    return f"{path}: lines {first} and {second} have the same custom_id {shown(name)}; each needs its own"
