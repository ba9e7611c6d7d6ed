"""API keys: one for everybody, or several from a file, each with a name and limits of its own.

[[key]]
name = "team-a"
key = "sk-..."               # or sha256 = "...", the key's SHA-256 in hexadecimal
requests-per-minute = 60     # each limit may be left out
tokens-per-minute = 100000   # of prompts and answers
concurrent = 8               # requests that are being answered
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nic_frontend.errors import ApiError
from nic_frontend.http.asgi import Scope, header
from ringbuffer.small_file import read_small_text

log = logging.getLogger(__name__)

MOST_KEYS = 512
LIMITS = ("requests-per-minute", "tokens-per-minute", "concurrent")
FIELDS = ("name", "key", "sha256", *LIMITS)
SETTLED_NS = 1_000_000_000  # more than a tick of any file system's clock


@dataclass(frozen=True)
class Key:
    """`name` is for logs; None where there is one key for everybody. A limit of None is none."""

    digest: bytes  # SHA-256
    name: str | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    concurrent: int | None = None

    @property
    def has_limits(self) -> bool:
        return any((self.requests_per_minute, self.tokens_per_minute, self.concurrent))


class Keys:
    """Those that open the API: `only`, or those of the file at `path`; without both, none is needed.

    Raises OSError or ValueError when the file cannot be used.
    """

    def __init__(self, only: str | None, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, ...] | None = None
        self._keys: tuple[Key, ...] = ()
        self._told = ""  # why they were not read the last time
        if path is not None:
            self._stamp, self._keys = _settled(_stamp(path)), read_keys(path)
        elif only:
            self._keys = (Key(hashlib.sha256(only.encode()).digest()),)

    @property
    def needed(self) -> bool:
        return bool(self._keys)

    def check(self, scope: Scope) -> Key | None:
        """The key of this request; None where none is needed. Raises ApiError 401."""
        if not self._keys:
            return None
        scheme, _, given = (header(scope, b"authorization") or "").partition(" ")
        if scheme.lower() != "bearer":
            given = header(scope, b"x-api-key") or ""  # as Anthropic's clients send it
        digest = hashlib.sha256(given.strip().encode()).digest()
        found = None
        for key in self._keys:  # all of them: how long it takes tells nothing
            if secrets.compare_digest(digest, key.digest):
                found = key
        if not given or found is None:
            raise ApiError(
                401,
                "incorrect API key; send `Authorization: Bearer KEY`",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
        return found

    def look(self) -> None:
        """Reads a file that has changed; one that is wrong leaves the keys as they were."""
        if self._path is None:
            return
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return
            self._stamp = _settled(stamp)
            before, self._keys = self._keys, read_keys(self._path)
        except (OSError, ValueError) as error:
            if str(error) != self._told:  # once a second would be too often
                log.warning("the API keys stay as they were: %s", error)
            self._told = str(error)
        else:
            self._told = ""
            if self._keys != before:
                log.info("read %d API keys from %s", len(self._keys), self._path)


def _stamp(path: Path) -> tuple[int, ...]:
    state = path.stat()
    return state.st_mtime_ns, state.st_ino, state.st_size


def _settled(stamp: tuple[int, ...]) -> tuple[int, ...] | None:
    """The stamp if it tells every later change. A file that changed just now may do so again within the same
    tick of its file system's clock, so that it has to be read once more."""
    return stamp if time.time_ns() - stamp[0] > SETTLED_NS else None


def read_keys(path: Path) -> tuple[Key, ...]:
    """Raises ValueError for what is wrong with the file, never with a key in its words."""
    text = read_small_text(path, "write a table [[key]] for each key, and nothing else")
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    tables = content.get("key")
    if set(content) != {"key"} or not isinstance(tables, list) or not tables:
        raise ValueError(f"{path}: write a table [[key]] for each key, and nothing else")
    if len(tables) > MOST_KEYS:
        raise ValueError(f"{path}: {len(tables)} keys are too many; at most {MOST_KEYS}")
    keys = tuple(_key(f"{path}: key {number}", table) for number, table in enumerate(tables, 1))
    for what, values in (("names", [key.name for key in keys]), ("keys", [key.digest for key in keys])):
        if len(set(values)) < len(values):
            raise ValueError(f"{path}: two {what} are the same")
    return keys


def _key(where: str, table: Any) -> Key:
    if not isinstance(table, dict):
        raise ValueError(f"{where}: write [[key]], a table")
    if unknown := [name for name in table if name not in FIELDS]:
        raise ValueError(f"{where}: there is no {unknown[0]}, only {', '.join(FIELDS)}")
    name = table.get("name")
    if not isinstance(name, str) or not re.fullmatch(r"[\w.@-]{1,64}", name):
        raise ValueError(f"{where}: name must be 1 to 64 letters, digits, and any of . _ - @")
    for limit in LIMITS:
        value = table.get(limit, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{where} ({name}): {limit} must be a whole number from 1 on")
    return Key(
        _digest(f"{where} ({name})", table.get("key"), table.get("sha256")),
        name,
        **{limit.replace("-", "_"): table.get(limit) for limit in LIMITS},
    )


def _digest(where: str, key: Any, sha256: Any) -> bytes:
    if (key is None) == (sha256 is None):
        raise ValueError(f"{where}: give key or sha256, one of them")
    if key is not None:
        if not isinstance(key, str) or len(key.strip()) < 8:
            raise ValueError(f"{where}: key must be a text of at least 8 characters")
        return hashlib.sha256(key.strip().encode()).digest()
    if not isinstance(sha256, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"{where}: sha256 must be 64 hexadecimal digits")
    return bytes.fromhex(sha256)
