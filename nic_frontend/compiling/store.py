"""The grammars that requests ask for: compiled in other processes, and kept for the next that asks."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import msgspec

from nic_frontend.compiling.compilers import Compilers, Job, NoCompilers, TooManyWait
from nic_frontend.compiling.protocol import Outcome, start_frame
from nic_frontend.compiling.watcher import GrammarWatcher
from nic_frontend.errors import ApiError, ClientGone, bad_request, too_many_grammars, unavailable
from nic_frontend.grammar.finite import infinite_number

KEPT_BYTES = 64 << 20
KEPT_REFUSALS = 1_000
MAX_SOURCE = 1 << 20  # characters of all that a grammar is made of, as JSON

Source = dict[str, Any]  # JSON, as answer.py reads it
Key = bytes
Charge = Callable[[float, bool], None]  # seconds of a processor, and whether the grammar was refused


async def _stays() -> None:
    await asyncio.get_running_loop().create_future()


@dataclass(frozen=True)
class Asker:
    """Who asks for a grammar. `client` as of http/clients.py; `left` returns when it has left; `working` is
    entered while one is compiled for it, and raises ApiError where its limits forbid that now.
    """

    client: int = 0
    left: Callable[[], Awaitable[object]] = _stays
    working: Callable[[], AbstractContextManager[Charge]] = lambda: contextlib.nullcontext(lambda *_: None)


ANYBODY = Asker()


class Refused(Exception):
    """Why a grammar cannot be enforced."""


class Compiling:
    """A source that is being compiled, for all who wait for it."""

    def __init__(self, work: asyncio.Task[bytes]) -> None:
        self.work = work
        self.waiting = 0
        work.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait any more

    async def result(self, asker: Asker) -> bytes:
        """Raises ClientGone when `asker` leaves before, and what the work raises."""
        left = asyncio.ensure_future(asker.left())
        self.waiting += 1
        try:
            await asyncio.wait((self.work, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.waiting -= 1
            left.cancel()
            if not self.waiting:
                self.work.cancel()  # harmless when it is done
        if not self.work.done():
            raise ClientGone
        return self.work.result()


class Grammars:
    """`max_words` is the longest that the backend takes, `special_texts` are those of the model's special
    tokens. Lives on the event loop.
    """

    def __init__(self, max_words: int, watcher: GrammarWatcher, special_texts: Iterable[str] = ()) -> None:
        self._max_words = max_words
        self._watcher = watcher
        self._kept: OrderedDict[Key, bytes] = OrderedDict()  # last used, last
        self._kept_bytes = 0
        self._refused: OrderedDict[Key, str] = OrderedDict()
        self._compiling: dict[Key, Compiling] = {}
        self._compilers = Compilers(start_frame(special_texts, max_words), max_words, watcher)

    @property
    def waiting(self) -> int:
        """Grammars that are being compiled, or wait for that."""
        return len(self._compiling)

    @property
    def available(self) -> bool:
        """Whether the backend takes any."""
        return self._max_words > 0

    def start(self) -> None:
        """Starts the processes, so that they are there when the first source comes."""
        if self.available:
            self._compilers.start()

    async def block(
        self, source: Source, param: str, *, otherwise: Source | None = None, asker: Asker = ANYBODY
    ) -> bytes:
        """The compiled grammar of `source`; where that cannot be compiled, of `otherwise`. Equal sources have
        equal grammars.

        Raises ApiError 400 naming `param`, 429 when too many wait or `asker` has used up its limits, 503 when
        nothing can be compiled, and ClientGone when `asker` leaves.
        """
        if not self.available:
            raise bad_request(
                f"'{param}' needs a grammar, and this server's backend takes none",
                param,
                "unsupported_parameter",
            )
        try:
            text = _text_of(source, param)
        except ApiError:
            if otherwise is None:
                raise
            return await self.block(otherwise, param, asker=asker)
        key = hashlib.sha256(text).digest()
        if (found := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            self._watcher.on_grammar_reused()
            return found
        if (why := self._refused.get(key)) is not None:
            self._watcher.on_grammar_refused()
            raise _refusal(why, param)
        with asker.working() as charge:
            return await self._result(key, text, otherwise, param, asker, charge)

    async def _result(
        self, key: Key, text: bytes, otherwise: Source | None, param: str, asker: Asker, charge: Charge
    ) -> bytes:
        """Of a compilation that all share who want the same."""
        compiling = self._compiling.get(key)
        if compiling is None:
            texts = [text] if otherwise is None else [text, _text_of(otherwise, param)]
            work = asyncio.ensure_future(self._compile(key, texts, asker.client, charge))
            compiling = self._compiling[key] = Compiling(work)
        try:
            return await compiling.result(asker)
        except Refused as error:
            raise _refusal(str(error), param) from None
        except TooManyWait:
            raise too_many_grammars(param) from None
        except NoCompilers:
            raise unavailable("grammars cannot be compiled now; retry shortly") from None
        finally:
            if not compiling.waiting and self._compiling.get(key) is compiling:
                del self._compiling[key]

    async def _compile(self, key: Key, texts: list[bytes], client: int, charge: Charge) -> bytes:
        """Of the first of the texts that can be compiled. Raises Refused with what is wrong with the last."""
        asked = time.perf_counter()
        why = ""
        for text in texts:
            job, is_refused = Job(text, client), False
            try:
                answer = await self._compilers.compile(job)
                is_refused = answer.outcome != Outcome.BLOCK
            finally:
                charge(job.spent_s, is_refused)
            if not is_refused:
                self._keep(key, answer.content)
                self._watcher.on_grammar_compiled(time.perf_counter() - asked)
                return answer.content
            why = answer.content.decode(errors="replace")
        self._refused[key] = why
        if len(self._refused) > KEPT_REFUSALS:
            self._refused.popitem(last=False)
        self._watcher.on_grammar_refused()
        raise Refused(why)

    def _keep(self, key: Key, block: bytes) -> None:
        self._kept[key] = block
        self._kept_bytes += len(block)
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def fail_all(self, error: ApiError) -> None:
        """All that are compiled fail, and so will all that are asked for and not kept."""
        self._compilers.fail_all(error)

    def close(self) -> None:
        self._compilers.close()


def _refusal(why: str, param: str) -> ApiError:
    return bad_request(f"'{param}' cannot be enforced: {why}", param, "invalid_value")


def _text_of(source: Source, param: str) -> bytes:
    """A source as a process gets it. Raises ApiError 400 for one that is too large."""
    try:
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # what only the other encoder writes
            # The other encoder would take ten times as long to show that there is too much.
            check_length(len(msgspec.json.encode(source)), param)
        text = json.dumps(source, allow_nan=False).encode()
    except RecursionError as error:
        raise bad_request(f"'{param}' has too many levels", param, "invalid_value") from error
    except ValueError as error:
        if (where := infinite_number(source)) is not None:
            raise bad_request(
                f"'{param}' has a number that is not finite, which JSON does not have (at {where})",
                param,
                "invalid_value",
            ) from error
        raise bad_request(f"'{param}' has a number with too many digits", param, "invalid_value") from error
    check_length(len(text), param)
    return text


def check_length(characters: int, param: str) -> None:
    """Raises ApiError 400 for a source that is too large."""
    if characters > MAX_SOURCE:
        raise bad_request(f"'{param}' has more than {MAX_SOURCE} characters", param, "invalid_value")
