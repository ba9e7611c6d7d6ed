"""Grammars beside the event loop: compiled once for all who wait, kept, bounded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from nic_frontend.errors import ApiError
from nic_frontend.grammar import store
from nic_frontend.grammar.expression import Expression, literal
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.store import Grammars, Looser
from nic_frontend.metrics import Metrics
from ringbuffer.grammar import accepts, unpack

LARGE = "x" * store.MAX_SOURCE
DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]


class Maker:
    """Makes the language of a text, when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.times = 0

    def __call__(self) -> Expression:
        self.times += 1
        assert self.may.wait(60)
        return literal("x")


def run(work: Callable[[Grammars], Awaitable[None]]) -> None:
    async def body() -> None:
        grammars = Grammars(1 << 16, Metrics())
        try:
            await work(grammars)
        finally:
            grammars.close()

    asyncio.run(body())


def test_who_waits_for_the_same_shares_it() -> None:
    """Also when the first one leaves meanwhile."""
    make = Maker()

    async def work(grammars: Grammars) -> None:
        first, second = (asyncio.create_task(grammars.block(["x"], make, "p")) for _ in range(2))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.sleep(0.01)
        make.may.set()
        assert accepts(unpack(await second), b"x")
        assert await grammars.block(["x"], make, "p") == await second
        assert make.times == 1
        assert first.cancelled()

    run(work)


def test_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_WAITING", 2)
    make = Maker()

    async def work(grammars: Grammars) -> None:
        waiting = [asyncio.create_task(grammars.block([i], make, "p")) for i in range(2)]
        await asyncio.sleep(0.01)
        with pytest.raises(ApiError) as refused:
            await grammars.block([2], make, "p")
        assert refused.value.status == 429
        assert refused.value.body["error"] == {
            "message": "too many grammars wait to be compiled; retry shortly",
            "type": "rate_limit_error",
            "param": "p",
            "code": "rate_limit_exceeded",
        }
        make.may.set()
        await asyncio.gather(*waiting)
        assert await grammars.block([2], make, "p")

    run(work)


def test_what_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def make(text: str) -> Callable[[], Expression]:
        def work() -> Expression:
            made.append(text)
            return literal(text)

        return work

    async def work(grammars: Grammars) -> None:
        size = len(await grammars.block("a", make("a"), "p"))
        monkeypatch.setattr(store, "KEPT_BYTES", 2 * size)
        for text in "babcabc":  # b, then a and b are there, c pushes a out, and a pushes b out, ...
            await grammars.block(text, make(text), "p")
        assert "".join(made) == "abcabc"

    run(work)


def test_bad_sources() -> None:
    def refuse() -> Expression:
        raise GrammarRefused("no", "#/x")

    def recur() -> Expression:
        return recur()

    async def work(grammars: Grammars) -> None:
        for source, make, told in (
            (1, refuse, "'p' cannot be enforced: no (at #/x)"),
            (2, recur, "nested too deeply"),
            (LARGE, refuse, "has more than"),
            (DEEP, refuse, "too many levels"),
        ):
            for _ in range(2):
                with pytest.raises(ApiError) as refused:
                    await grammars.block(source, make, "p")
                assert refused.value.status == 400
                assert told in str(refused.value)

    run(work)


def test_what_is_looser_takes_the_place_of_what_cannot_be_compiled() -> None:
    def refuse() -> Expression:
        raise GrammarRefused("no", "#/x")

    async def work(grammars: Grammars) -> None:
        looser = Looser("looser", lambda: literal("x"))
        for source in (1, LARGE, DEEP):
            for _ in range(2):
                block = await grammars.block(source, refuse, "p", otherwise=looser)
                assert accepts(unpack(block), b"x")
        for source in (LARGE, DEEP):
            with pytest.raises(ApiError) as refused:
                await grammars.block(source, refuse, "p", otherwise=Looser(source, refuse))
            assert refused.value.status == 400

    run(work)
