"""Whose request it is: clients take turns (S2 of kernels/scheduler), and leave room for each other."""

from __future__ import annotations

import hashlib
import secrets

from nic_frontend.http.asgi import Scope

_SECRET = secrets.token_bytes(16)  # so that nobody can choose to be counted with somebody else


def client_of(scope: Scope, key: bytes | None) -> int:
    """The number of a client: of its key where keys tell clients apart, else of its connection."""
    if key is not None:
        return _number(key, b"")  # the same at every frontend
    return _number(repr(scope.get("client")).encode(), _SECRET)


def _number(name: bytes, secret: bytes) -> int:
    return int.from_bytes(hashlib.blake2s(name, digest_size=4, key=secret).digest(), "little")
