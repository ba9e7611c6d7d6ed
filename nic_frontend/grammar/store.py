"""The grammars that requests ask for: compiled beside the event loop, and kept for the next request with the
same.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from nic_frontend.errors import ApiError, bad_request, too_many_grammars
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.metrics import Metrics

KEPT_BYTES = 64 << 20
KEPT_REFUSALS = 1_000
MAX_SOURCE = 1 << 20  # characters of all that a grammar is made of, as JSON
MAX_WAITING = 256  # grammars that are to be compiled
THREADS = 2

Key = bytes
Make = Callable[[], Expression]


class Looser(NamedTuple):
    """The grammar that takes the place of one that cannot be compiled."""

    source: Any
    make: Make


class Grammars:
    """`max_words` is the longest that the backend takes. Lives on the event loop."""

    def __init__(self, max_words: int, metrics: Metrics) -> None:
        self._max_words = max_words
        self._metrics = metrics
        self._kept: OrderedDict[Key, bytes] = OrderedDict()  # last used, last
        self._kept_bytes = 0
        self._refused: OrderedDict[Key, str] = OrderedDict()
        self._compiling: dict[Key, asyncio.Future[bytes]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="grammar")

    @property
    def available(self) -> bool:
        """Whether the backend takes any."""
        return self._max_words > 0

    async def block(self, source: Any, make: Make, param: str, *, otherwise: Looser | None = None) -> bytes:
        """The compiled grammar that `make` describes, which runs in a thread; where that cannot be compiled,
        `otherwise`. `source` is JSON: equal ones have equal grammars.

        Raises ApiError 400 naming `param`, and 429 when too many wait.
        """
        if not self.available:
            raise bad_request(
                f"'{param}' needs a grammar, and this server's backend takes none",
                param,
                "unsupported_parameter",
            )
        try:
            key = self._key(source, param)
        except ApiError:
            if otherwise is None:
                raise
            return await self.block(*otherwise, param)
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self._metrics.grammars_reused += 1
            return found
        if (why := self._refused.get(key)) is not None:
            self._metrics.grammars_refused += 1
            raise bad_request(why, param, "invalid_value")
        if key not in self._compiling:
            if len(self._compiling) >= MAX_WAITING:
                raise too_many_grammars(param)
            self._compiling[key] = asyncio.ensure_future(self._compile(key, make, otherwise, param))
        return await asyncio.shield(self._compiling[key])  # others may wait for it when this client leaves

    def _key(self, source: Any, param: str) -> Key:
        """Raises ApiError 400 for a source that is too large."""
        try:
            text = json.dumps(source)
        except RecursionError as error:
            raise bad_request(f"'{param}' has too many levels", param, "invalid_value") from error
        if len(text) > MAX_SOURCE:
            raise bad_request(f"'{param}' has more than {MAX_SOURCE} characters", param, "invalid_value")
        return hashlib.sha256(text.encode()).digest()

    async def _compile(self, key: Key, make: Make, otherwise: Looser | None, param: str) -> bytes:
        def of(make: Make) -> bytes:
            try:
                return compiled(make(), self._max_words)
            except RecursionError:
                raise GrammarRefused("it is nested too deeply") from None
            except UnicodeEncodeError:
                raise GrammarRefused("it has a lone surrogate, which no Unicode text has") from None

        def work() -> bytes:
            try:
                return of(make)
            except GrammarRefused:
                if otherwise is None:
                    raise
                return of(otherwise.make)

        asked = time.perf_counter()
        try:
            block = await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except GrammarRefused as error:
            why = f"'{param}' cannot be enforced: {error}"
            self._refused[key] = why
            self._metrics.grammars_refused += 1
            if len(self._refused) > KEPT_REFUSALS:
                self._refused.popitem(last=False)
            raise bad_request(why, param, "invalid_value") from error
        finally:
            del self._compiling[key]
        self._metrics.on_grammar(time.perf_counter() - asked)
        self._kept[key] = block
        self._kept_bytes += len(block)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])
        return block

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
