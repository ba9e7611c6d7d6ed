"""HTTP/1.1 as a strict client reads it: what is not well-formed is a fault of the server."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [\x20-\x7e]*\r\n")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\x20-\x7e\x80-\xff]*)\r\n")
CHUNK = re.compile(rb"([0-9a-f]+)\r\n")


class Malformed(Exception):
    """What the server sent is no response."""


class Response(NamedTuple):
    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.fields.get(b"connection") == b"close"


async def read_response(reader: asyncio.StreamReader, *, head_only: bool = False) -> Response | None:
    """The next one; None where the connection ended before it.

    Raises Malformed, also where it ends within one.
    """
    line = await reader.readline()
    if not line:
        return None
    if not (status := STATUS.fullmatch(line)):
        raise Malformed(f"a status line {line[:100]!r}")
    if status[1] == b"100":
        await _expect(reader, b"\r\n")
        return await read_response(reader, head_only=head_only)
    fields: dict[bytes, bytes] = {}
    while (line := await reader.readline()) != b"\r\n":
        if not (field := FIELD.fullmatch(line)):
            raise Malformed(f"a field {line[:100]!r}")
        fields[field[1].lower()] = field[2]
    return Response(int(status[1]), fields, b"" if head_only else await _body(reader, fields))


async def _body(reader: asyncio.StreamReader, fields: dict[bytes, bytes]) -> bytes:
    try:
        if fields.get(b"transfer-encoding") == b"chunked":
            chunks = []
            while size := await _chunk_size(reader):
                chunks.append(await reader.readexactly(size))
                await _expect(reader, b"\r\n")
            await _expect(reader, b"\r\n")
            return b"".join(chunks)
        if b"content-length" not in fields:
            if fields.get(b"connection") != b"close":
                raise Malformed(f"a body of unknown length: {fields}")
            return await reader.read()  # HTTP/1.0 knows no chunks (RFC 9112, 6.3)
        return await reader.readexactly(int(fields[b"content-length"]))
    except asyncio.IncompleteReadError as error:
        raise Malformed("half a body") from error


async def _chunk_size(reader: asyncio.StreamReader) -> int:
    line = await reader.readline()
    if not (size := CHUNK.fullmatch(line)):
        raise Malformed(f"a chunk's size {line[:100]!r}")
    return int(size[1], 16)


async def _expect(reader: asyncio.StreamReader, wanted: bytes) -> None:
    if (found := await reader.readexactly(len(wanted))) != wanted:
        raise Malformed(f"{found!r} where {wanted!r} belongs")
