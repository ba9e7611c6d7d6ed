"""Draws byte streams of HTTP requests: right ones, and what becomes of them by chance."""

from __future__ import annotations

import json
import random
from typing import NamedTuple

TOKENS = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b":",
    b" ",
    b"\t",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"-1\r\n",
    b"+5\r\n",
    b"0x5\r\n",
    b"a: b\r\n",
    b"transfer-encoding: chunked\r\n",
    b"transfer-encoding: gzip, chunked\r\n",
    b"content-length: 5\r\n",
    b"content-length: -5\r\n",
    b"content-length: 18446744073709551617\r\n",
    b"content-length: 5, 5\r\n",
    b"host: localhost\r\n",
    b"expect: 100-continue\r\n",
    b"connection: close\r\n",
    b"connection: upgrade\r\nupgrade: h2c\r\n",
    b"POST / HTTP/1.1\r\n",
    b"GET / HTTP/0.9\r\n",
    b";ext=1",
    b"%00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00",
    b"http://[",
    b"\xff" * 8,
    b"A" * 5000,
]
PATHS = [b"/health", b"/v1/models", b"/ping", b"/nowhere", b"/v1/models/tiny", b"/version"]


class Case(NamedTuple):
    pieces: list[bytes]  # sent one after the other
    answers: list[int] | None  # the status of each, where all is right


def draw_case(seed: int) -> Case:
    rng = random.Random(seed)
    requests = [_request(rng) for _ in range(rng.choice([1, 1, 1, 2, 3, 5]))]
    stream, answers = b"".join(data for data, _ in requests), [status for _, status in requests]
    right = rng.random() < 0.2
    if not right:
        for _ in range(rng.choice([1, 1, 2, 4, 10])):
            stream = _mutated(rng, stream)
    return Case(_cut(rng, stream), answers if right else None)


def _request(rng: random.Random) -> tuple[bytes, int]:
    if rng.random() < 0.35:
        path = rng.choice(PATHS)
        method = rng.choice([b"GET", b"GET", b"HEAD", b"DELETE"])
        status = 404 if path == b"/nowhere" else 405 if method == b"DELETE" else 200
        if method == b"HEAD":
            method, path, status = b"GET", b"/health", 200  # a body would be expected of the rest
        return method + b" " + path + b" HTTP/1.1\r\nhost: localhost\r\n" + _fields(rng) + b"\r\n", status
    body = {"prompt": "x" * rng.choice([1, 1, 10, 200]), "max_tokens": rng.randint(1, 4)}
    if rng.random() < 0.3:
        body["stream"] = True
    content = json.dumps(body).encode()
    head = (
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        + _fields(rng)
    )
    if rng.random() < 0.5:
        return head + b"content-length: %d\r\n\r\n" % len(content) + content, 200
    chunks = b""
    while content:
        n = rng.randint(1, min(len(content), 40))
        extension = rng.choice([b"", b"", b";a=b", b';q="x"'])
        chunks += b"%x%s\r\n%s\r\n" % (n, extension, content[:n])
        content = content[n:]
    return head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n", 200


def _fields(rng: random.Random) -> bytes:
    return b"".join(
        b"x-%d: %s\r\n" % (rng.randrange(1000), b"v" * rng.choice([0, 1, 30, 2000]))
        for _ in range(rng.choice([0, 0, 1, 5]))
    )


def _mutated(rng: random.Random, stream: bytes) -> bytes:
    if not stream:
        return rng.choice(TOKENS)
    at = rng.randrange(len(stream))
    until = min(len(stream), at + rng.choice([1, 2, 8, 64, 500]))
    match rng.randrange(7):
        case 0:
            return stream[:at] + bytes([stream[at] ^ 1 << rng.randrange(8)]) + stream[at + 1 :]
        case 1:
            return stream[:at] + stream[until:]
        case 2:
            return stream[:until] + stream[at:]
        case 3:
            return stream[:at]
        case 4:
            return stream[:at] + rng.randbytes(rng.choice([1, 4, 100])) + stream[at:]
        case 5:  # at the beginning of a line, where most is decided
            at = stream.rfind(b"\r\n", 0, at) + 2
    return stream[:at] + rng.choice(TOKENS) + stream[at:]


def _cut(rng: random.Random, stream: bytes) -> list[bytes]:
    places = sorted(rng.randrange(len(stream) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]
