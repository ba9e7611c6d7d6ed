"""What each API key has left of its limits, shared by the frontends of a host.

Their common memory has an entry for each key: what is left of a minute's requests and tokens, which comes
back evenly as time passes, and how many of its requests are open at each frontend. A request is let in while
its key has a request and some tokens left. It pays for its prompt then, and for its answer at the end: the
tokens may go below nothing, and are then waited for. What is computed before it is let in costs tokens, too,
and one request if it is refused there.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from nic_frontend.errors import ApiError
from nic_frontend.http.keys import MOST_KEYS, Key
from nic_frontend.ring.host_segment import HostSegment
from nic_frontend.ring.request import Request
from ringbuffer.abi import MAX_LEASES

ENTRY = np.dtype(
    [("key", "u8"), ("requests", "f8"), ("tokens", "f8"), ("when", "f8"), ("open", "u4", (MAX_LEASES,))]
)
ENTRIES = 2 * MOST_KEYS  # keys that were taken out of the file keep theirs
BUDGET_BYTES = ENTRIES * ENTRY.itemsize  # that they take of the segment
MINUTE_S = 60.0
TOKENS_PER_S = 1000.0  # that a second of a processor counts as
BYTES_OF_TOKEN = 4  # of a body that is tokenized, rendered or counted, and for which nothing is generated


class KeyBudgets:
    """For the frontend of `lease`. The entries lie at byte `at` of the segment."""

    def __init__(self, segment: HostSegment, at: int, lease: int) -> None:
        self._segment, self._at, self._lease = segment, at, lease
        with segment.locked():
            self._entries()["open"][:, lease] = 0  # a frontend that died left its own

    def check(self, key: Key | None) -> None:
        """Raises ApiError 429 when `key` has used up a limit: before anything is read or done for it."""
        if key is None or not key.has_limits:
            return
        with self._segment.locked():
            self._entry_within_limits(key)

    def _entries(self) -> NDArray[np.void]:
        return np.frombuffer(self._segment.memory, ENTRY, ENTRIES, self._at)

    @contextlib.contextmanager
    def admitted(self, key: Key | None, requests: list[Request], n_bytes: int = 0) -> Iterator[None]:
        """While a call of these choices is answered, or one without choices whose body has `n_bytes`, as to
        tokenize it. Raises ApiError 429 when `key` has used up a limit.
        """
        if key is None or not key.has_limits:
            yield
            return
        with self._segment.locked():
            entry = self._entry_within_limits(key)
            entry["requests"] -= 1
            entry["tokens"] -= sum(len(request.prompt) for request in requests) + n_bytes // BYTES_OF_TOKEN
            entry["open"][self._lease] += 1
        try:
            yield
        finally:
            with self._segment.locked():
                entry["tokens"] -= sum(request.n_tokens for request in requests)
                entry["open"][self._lease] -= min(entry["open"][self._lease], 1)

    @contextlib.contextmanager
    def working(self, key: Key | None, *, admitted: bool = False) -> Iterator[Callable[[float, bool], None]]:
        """While something is computed for a request that may not be `admitted` yet, as its grammar. What this
        yields is told what that took: seconds of a processor, and whether the request was refused then.

        Raises ApiError 429 when `key` has used up a limit.
        """
        if key is None or not key.has_limits:
            yield lambda spent_s, refused: None
            return
        if admitted:  # it counts as open, and as a request, already
            yield lambda spent_s, refused: self._charge(key, spent_s, False)
            return
        with self._segment.locked():
            entry = self._entry_within_limits(key)
            entry["open"][self._lease] += 1
        try:
            yield functools.partial(self._charge, key)
        finally:
            with self._segment.locked():
                entry["open"][self._lease] -= min(entry["open"][self._lease], 1)

    def _charge(self, key: Key, spent_s: float, refused: bool) -> None:
        with self._segment.locked():
            entry = self._entry(key)
            entry["tokens"] -= spent_s * TOKENS_PER_S
            entry["requests"] -= refused  # it will not be admitted, which is what else counts

    def _entry_within_limits(self, key: Key) -> np.void:
        """The entry of a key. Within the lock. Raises ApiError 429 when the key has used up a limit."""
        entry = self._entry(key)
        _refill(entry, key)
        if (error := _refusal(entry, key)) is not None:
            raise error
        return entry

    def _entry(self, key: Key) -> np.void:
        """The entry of a key, made where there is none yet. Within the lock.

        Raises ApiError 429 when there is no room for one.
        """
        entries = self._entries()
        number = int.from_bytes(key.digest[:8], "little") | 1  # 0 is a free entry
        found = np.flatnonzero(entries["key"] == number)
        if not len(found):
            found = np.flatnonzero(entries["key"] == 0)
            if not len(found):  # so many keys came and went: that of one which has nothing open
                idle = np.flatnonzero(entries["open"].sum(axis=1) == 0)
                if not len(idle):
                    raise _limited("there are too many API keys with open requests", 1.0)
                found = idle[[np.argmin(entries["when"][idle])]]
            entry = entries[found[0]]
            entry["key"], entry["when"], entry["open"] = number, time.monotonic(), 0
            entry["requests"], entry["tokens"] = key.requests_per_minute or 0, key.tokens_per_minute or 0
        entry = entries[found[0]]
        assert isinstance(entry, np.void)
        return entry


def _refill(entry: np.void, key: Key) -> None:
    now = time.monotonic()
    minutes, entry["when"] = max(0.0, now - float(entry["when"])) / MINUTE_S, now
    for name, limit in (("requests", key.requests_per_minute), ("tokens", key.tokens_per_minute)):
        if limit is not None:
            entry[name] = min(float(entry[name]) + limit * minutes, limit)


def _refusal(entry: np.void, key: Key) -> ApiError | None:
    """Why the key's next request is not let in now, and for how long; None when it is."""
    if key.requests_per_minute is not None and (missing := 1.0 - float(entry["requests"])) > 0:
        what, wait_s = (
            f"requests-per-minute = {key.requests_per_minute}",
            missing * MINUTE_S / key.requests_per_minute,
        )
    elif key.tokens_per_minute is not None and (missing := -float(entry["tokens"])) >= 0:
        what, wait_s = (
            f"tokens-per-minute = {key.tokens_per_minute}",
            missing * MINUTE_S / key.tokens_per_minute,
        )
    elif key.concurrent is not None and int(entry["open"].sum()) >= key.concurrent:
        what, wait_s = f"concurrent = {key.concurrent}", 1.0
    else:
        return None
    return _limited(f"the API key {key.name} has reached its limit, {what}", wait_s)


def _limited(message: str, wait_s: float) -> ApiError:
    return ApiError(
        429,
        message,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"retry-after": str(int(wait_s) + 1)},
    )
