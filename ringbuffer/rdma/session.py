"""The exchange's connection, without its socket: opening, authentication and frames (V1).

Each side opens with 44 bytes: magic, version, a fresh nonce. From then on every frame is

    length u32 | HMAC-SHA-256 | body, a JSON object of `length` bytes

under a key derived from the shared key and both nonces. The code covers the sender's role and a counter, so
a frame proves that its sender knows the key and answers this connection: it cannot be replayed, reordered or
reflected (RFC 2104; the scheme is that of ISO/IEC 9798-4's mutual authentication with nonces).

The backend seals nothing for a peer that has not proved the key, for whoever has a sealed frame can try keys
against it. A frontend speaks first, so that one who stands in for the backend gets such a frame: the shared
key is stretched (RFC 7914), which makes each try cost as much as a start.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from enum import Enum
from functools import lru_cache
from typing import Any

VERSION = 2
MAGIC = b"BLNKRDMA"
NONCE_BYTES = 32
OPENING = struct.Struct(f"<8sI{NONCE_BYTES}s")
FRAME = struct.Struct(f"<I{hashlib.sha256().digest_size}s")
MAX_BODY = 4096
STRETCH = {"n": 1 << 14, "r": 8, "p": 1}  # 16 MiB and some 40 ms

Body = dict[str, Any]


class ExchangeError(RuntimeError):
    """The exchange cannot go on: the message is for the operator of the side that raises it."""


class WrongKey(ExchangeError):
    """A frame's code is not the one that the shared key gives."""


class Role(Enum):
    FRONTEND = "frontend"
    BACKEND = "backend"

    @property
    def other(self) -> Role:
        return Role.BACKEND if self is Role.FRONTEND else Role.FRONTEND


class Session:
    """One side of one connection. Call in order: `opening`, `begin`, then `seal` and `unseal` at will."""

    def __init__(self, key: bytes, role: Role) -> None:
        self._shared = _stretched(key)
        self._role = role
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._key = b""
        self._sealed = self._unsealed = 0

    @property
    def proved(self) -> bool:
        """Whether the other side has proved that it knows the key."""
        return self._unsealed > 0

    def opening(self) -> bytes:
        return OPENING.pack(MAGIC, VERSION, self._nonce)

    def begin(self, theirs: bytes) -> None:
        """Takes the other side's opening. Raises ExchangeError when it is of another program or version."""
        magic, version, nonce = OPENING.unpack(theirs)
        if magic != MAGIC:
            raise ExchangeError(f"the other side is not a blink {self._role.other.value}")
        if version != VERSION:
            raise ExchangeError(
                f"the {self._role.other.value} speaks version {version} of the exchange, this "
                f"{self._role.value} version {VERSION}: run the same version of blink on both sides"
            )
        nonces = [self._nonce, nonce] if self._role is Role.FRONTEND else [nonce, self._nonce]
        self._key = _code(self._shared, b"blink ring exchange", *nonces)

    def seal(self, body: Body) -> bytes:
        raw = _written(body)
        code = self._frame_code(self._role, self._sealed, raw)
        self._sealed += 1
        return FRAME.pack(len(raw), code) + raw

    def unseal(self, code: bytes, raw: bytes) -> Body:
        """The frame's body. Raises WrongKey, and ExchangeError when it is no JSON object."""
        if not hmac.compare_digest(code, self._frame_code(self._role.other, self._unsealed, raw)):
            raise WrongKey(f"the {self._role.other.value} does not prove that it knows the ring's key")
        self._unsealed += 1
        try:
            body = json.loads(raw)
        except ValueError as error:
            raise ExchangeError(f"the {self._role.other.value} sent a frame that is not JSON") from error
        if not isinstance(body, dict):
            raise ExchangeError(f"the {self._role.other.value} sent a frame that is not an object")
        return body

    def _frame_code(self, sender: Role, number: int, raw: bytes) -> bytes:
        return _code(self._key, sender.value.encode(), number.to_bytes(8, "little"), raw)


def unsealed(body: Body) -> bytes:
    """A frame that proves nothing. Its reader finds that the key is not its own."""
    raw = _written(body)
    return FRAME.pack(len(raw), bytes(hashlib.sha256().digest_size)) + raw


def _written(body: Body) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


@lru_cache(maxsize=16)
def _stretched(key: bytes) -> bytes:
    return hashlib.scrypt(key, salt=b"blink ring exchange", dklen=32, **STRETCH)


def frame_size(header: bytes) -> tuple[int, bytes]:
    """The body's length and code from FRAME.size bytes. Raises ExchangeError beyond MAX_BODY."""
    length, code = FRAME.unpack(header)
    if length > MAX_BODY:
        raise ExchangeError(f"the other side announces a frame of {length} bytes, {MAX_BODY} is the limit")
    return length, code


def _code(key: bytes, *parts: bytes) -> bytes:
    # Each part with its length, so that no two lists of parts are the same bytes.
    message = b"".join(len(part).to_bytes(4, "little") + part for part in parts)
    return hmac.digest(key, message, "sha256")
