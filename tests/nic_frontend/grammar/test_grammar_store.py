"""Grammars beside the event loop: compiled once for all who wait, kept, bounded."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sources import Left, grammars, schema_source, slow_source, source_of_choice

from nic_frontend.compiling import store
from nic_frontend.compiling.store import Asker, Grammars
from nic_frontend.errors import ApiError, ClientGone
from nic_frontend.observe.metrics import Metrics
from ringbuffer.grammar import accepts, unpack

LARGE = source_of_choice("x" * store.MAX_SOURCE)
NESTED: list[Any] = []
for _ in range(100_000):
    NESTED = [NESTED]
DEEP = schema_source({"const": NESTED})
IMPOSSIBLE = schema_source({"type": "integer", "minimum": 1, "maximum": 0})


def run(work: Callable[[Grammars], Awaitable[None]], counts: Metrics | None = None) -> None:
    async def body() -> None:
        with grammars(counts=counts) as made:
            await work(made)

    asyncio.run(body())


def test_who_waits_for_the_same_shares_it() -> None:
    """Also when the first one leaves meanwhile."""
    counts = Metrics()

    async def work(made: Grammars) -> None:
        source = source_of_choice("x")
        first, second = (asyncio.create_task(made.block(source, "p")) for _ in range(2))
        await asyncio.sleep(0)
        first.cancel()
        assert accepts(unpack(await second), b"x")
        assert await made.block(source, "p") == await second
        assert counts.grammars_reused == 1
        assert first.cancelled()

    run(work, counts)


def test_who_leaves_waits_no_more_and_nothing_is_compiled_for_nobody() -> None:
    left = Left()

    async def work(made: Grammars) -> None:
        asked = asyncio.create_task(made.block(slow_source(1), "p", asker=Asker(left=left)))
        await asyncio.sleep(0.05)
        left.leave()
        with pytest.raises(ClientGone):
            await asked
        assert made.waiting == 0
        assert await made.block(source_of_choice("x"), "p")

    run(work)


def test_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nic_frontend.compiling.compilers.MOST_WAITING", (2, 2, 2, 2))

    async def work(made: Grammars) -> None:
        waiting = [
            asyncio.create_task(made.block(source_of_choice(str(i)), "p", asker=Asker(client=i)))
            for i in range(2)
        ]
        await asyncio.sleep(0)  # the processes have yet to start
        with pytest.raises(ApiError) as refused:
            await made.block(source_of_choice("2"), "p", asker=Asker(client=2))
        assert refused.value.status == 429
        assert refused.value.body["error"] == {
            "message": "too many grammars wait to be compiled; retry shortly",
            "type": "rate_limit_error",
            "param": "p",
            "code": "rate_limit_exceeded",
        }
        await asyncio.gather(*waiting)
        assert await made.block(source_of_choice("2"), "p")

    run(work)


def test_what_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Metrics()

    async def work(made: Grammars) -> None:
        size = len(await made.block(source_of_choice("a"), "p"))
        monkeypatch.setattr(store, "KEPT_BYTES", 2 * size)
        reused = []
        for text in "babcabc":  # b, then a and b are there, c pushes a out, and a pushes b out, ...
            before = counts.grammars_reused
            await made.block(source_of_choice(text), "p")
            reused.append(counts.grammars_reused > before)
        assert reused == [False, True, True, False, False, False, False]

    run(work, counts)


def test_bad_sources() -> None:
    async def work(made: Grammars) -> None:
        for source, told in (
            (IMPOSSIBLE, "'p' cannot be enforced: no answer can satisfy it"),
            (schema_source({"properties": {"a": {"type": "x"}}}), "(at #/properties/a/type)"),
            (schema_source({"const": "\ud800"}), "a lone surrogate, which no Unicode text has (at #)"),
            (LARGE, "has more than"),
            (DEEP, "too many levels"),
        ):
            for _ in range(2):
                with pytest.raises(ApiError) as refused:
                    await made.block(source, "p")
                assert refused.value.status == 400
                assert told in str(refused.value)

    run(work)


def test_refusals_are_short() -> None:
    """Some of them are kept, and they name what a client has sent."""

    async def work(made: Grammars) -> None:
        for schema in ({"type": 1}, {"const": float("nan")}):
            with pytest.raises(ApiError) as refused:
                await made.block(schema_source({"properties": {"x" * 900_000: schema}}), "p")
            assert len(str(refused.value)) < 2_000

    run(work)


def test_what_is_looser_takes_the_place_of_what_cannot_be_compiled() -> None:
    async def work(made: Grammars) -> None:
        looser = source_of_choice("x")
        for source in (IMPOSSIBLE, LARGE, DEEP):
            for _ in range(2):
                block = await made.block(source, "p", otherwise=looser)
                assert accepts(unpack(block), b"x")
        for source in (LARGE, DEEP):
            with pytest.raises(ApiError) as refused:
                await made.block(source, "p", otherwise=source)
            assert refused.value.status == 400

    run(work)


def test_an_asker_is_told_what_its_grammar_took() -> None:
    charged: list[tuple[float, bool]] = []

    @contextlib.contextmanager
    def working() -> Iterator[Callable[[float, bool], None]]:
        yield lambda spent_s, refused: charged.append((spent_s, refused))

    async def work(made: Grammars) -> None:
        asker = Asker(working=working)
        for _ in range(2):  # what is kept costs nothing
            await made.block(source_of_choice("x"), "p", asker=asker)
        with pytest.raises(ApiError):
            await made.block(IMPOSSIBLE, "p", asker=asker)
        assert [refused for _, refused in charged] == [False, True]
        assert all(0 < spent_s < 1 for spent_s, _ in charged)

    run(work)


def test_at_the_end_nobody_waits() -> None:
    async def work(made: Grammars) -> None:
        asked = [asyncio.create_task(made.block(slow_source(i), "p")) for i in range(20)]
        await asyncio.sleep(0.05)
        made.fail_all(ApiError(503, "the end"))
        answers = await asyncio.gather(*asked, made.block(source_of_choice("x"), "p"), return_exceptions=True)
        assert {str(answer) for answer in answers} == {"the end"}

    run(work)
