"""Slots: the tracker's scan, 429 when all are busy, and many streams at once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest
from harness import StartBackend, StartFrontend, wait_until
from limits import WAIT_S
from sse import parse, text_of
from test_validation import error_of

from nic_frontend.ring.slot_tracker import Size, SlotTracker
from ringbuffer.heap import Place

ONE = Size(5, 9)  # a granule of each heap


def test_the_scan_goes_round() -> None:
    slots = SlotTracker(4, 1024, 1024)
    assert slots.take([ONE] * 3) == [0, 1, 2]
    slots.put_back(1)
    assert slots.take([ONE] * 2) == [3, 1]
    assert slots.take([ONE]) == []
    slots.put_back(0)
    slots.put_back(2)
    assert slots.take([ONE] * 3) == []
    assert slots.n_free == 2
    assert slots.take([ONE] * 2) == [2, 0]


def test_waits_only_for_slots_that_are_being_released() -> None:
    async def scenario() -> None:
        slots = SlotTracker(2, 1024, 1024)
        slots.take([ONE] * 2)
        assert await slots.wait([ONE], WAIT_S) == []  # at once: nothing is on its way
        slots.releasing(1)
        asyncio.get_running_loop().call_later(0.01, slots.free, 1)
        assert await slots.wait([ONE], WAIT_S) == [1]
        slots.releasing(1)
        assert await slots.wait([ONE], 0.02) == []

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_without_a_limit_slots_in_use_are_waited_for() -> None:
    async def scenario() -> None:
        slots = SlotTracker(2, 1024, 1024)
        assert slots.take([ONE] * 2) == [0, 1]
        waiting = [asyncio.create_task(slots.wait([ONE], None)) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in waiting)
        slots.free(1)
        assert await waiting[0] == [1]
        waiting[1].cancel()
        await asyncio.wait([waiting[1]])
        slots.fail_waiting(ValueError("the end"))
        with pytest.raises(ValueError, match="the end"):
            await waiting[2]
        slots.free(0)
        assert slots.n_free == 1  # nobody waits for it any more

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_who_is_cancelled_when_all_fail_is_cancelled() -> None:
    async def scenario() -> None:
        slots = SlotTracker(1, 1024, 1024)
        slots.take([ONE])
        waiting = asyncio.create_task(slots.wait([ONE], None))
        await asyncio.sleep(0)
        slots.fail_waiting(ValueError("the end"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_ranges_are_held_until_their_slot_is_free() -> None:
    slots = SlotTracker(16, 128, 64)
    assert slots.take([Size(33, 17), Size(1, 1)]) == [0, 1]
    assert slots.place(0) == Place(0, 64, 0, 32, 32)
    assert slots.place(1) == Place(64, 32, 32, 16, 16)
    assert slots.take([Size(32, 17)]) == []  # no room for the answer: the prompt is not taken either
    assert slots.take([Size(33, 16)]) == []
    assert slots.take([Size(32, 16)]) == [2]
    slots.releasing(0)
    assert slots.take([Size(1, 1)]) == []
    slots.free(0)
    assert slots.take([Size(64, 32)]) == [3]
    assert slots.place(3) == Place(0, 64, 0, 32, 32)


def test_room_in_the_heaps_is_waited_for_in_order() -> None:
    """A request that needs much is not overtaken by those that need little."""

    async def scenario() -> None:
        slots = SlotTracker(16, 128, 1024)
        assert slots.take([Size(64, 1), Size(64, 1)]) == [0, 1]
        assert await slots.wait([Size(128, 1)], 5.0) == []
        for slot in (0, 1):
            slots.releasing(slot)
        large = asyncio.create_task(slots.wait([Size(96, 1)], WAIT_S))
        await asyncio.sleep(0)
        small = asyncio.create_task(slots.wait([Size(32, 1)], WAIT_S))
        await asyncio.sleep(0)
        assert await slots.wait([ONE], WAIT_S) == []  # what is being released is promised already
        slots.free(0)
        await asyncio.sleep(0.01)
        assert not large.done()
        assert not small.done()
        assert slots.take([ONE]) == []
        slots.free(1)
        assert [await large, await small] == [[2], [3]]

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_who_waits_behind_one_that_gives_up_is_served() -> None:
    async def scenario() -> None:
        slots = SlotTracker(16, 128, 1024)
        slots.take([Size(64, 1), Size(64, 1)])
        for slot in (0, 1):
            slots.releasing(slot)
        short = asyncio.create_task(slots.wait([Size(96, 1)], 0.05))
        gone = asyncio.create_task(slots.wait([Size(1, 1)], WAIT_S))
        await asyncio.sleep(0)
        slots.free(0)
        gone.cancel()
        assert await short == []
        assert await slots.wait([Size(64, 1)], WAIT_S) == [2]
        with pytest.raises(asyncio.CancelledError):
            await gone

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_nothing_of_a_lost_lease_is_given_out() -> None:
    async def scenario() -> None:
        slots = SlotTracker(16, 32, 1024)
        slots.take([ONE])
        slots.releasing(0)
        waits = asyncio.create_task(slots.wait([ONE], WAIT_S))
        await asyncio.sleep(0)
        slots.free(0)  # it has a slot now, and does not know yet
        slots.reset()
        assert await waits == []
        assert slots.n_free == 16
        assert slots.take([ONE]) == [0]

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


def test_429_with_retry_after_when_all_slots_are_busy(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_slots=16)
    frontend = start_frontend(backend)
    backend.stalled.set()
    answers: list[Any] = []

    def ask() -> None:
        body = {"prompt": ["x"] * 8, "max_tokens": 2}
        answers.append(httpx.post(f"{frontend.url}/v1/completions", json=body, timeout=WAIT_S))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(backend.accepted) == 16)
    response = frontend.client.post("/v1/completions", json={"prompt": "x"})
    error = error_of(response, 429)
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert int(response.headers["retry-after"]) >= 1
    backend.stalled.clear()
    for thread in threads:
        thread.join()
    assert [answer.status_code for answer in answers] == [200, 200]
    assert len(backend.accepted) == 16  # nothing of the refused request was submitted
    wait_until(lambda: frontend.service.tracker.slots.n_free == 16)
    assert frontend.client.post("/v1/completions", json={"prompt": "x"}).status_code == 200


def test_as_many_clients_as_slots_never_see_429(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend(n_slots=16), slot_wait_s=WAIT_S)

    async def one(client: httpx.AsyncClient) -> list[int]:
        body = {"prompt": "x", "max_tokens": 3}
        return [(await client.post("/v1/completions", json=body)).status_code for _ in range(20)]

    async def everyone() -> list[list[int]]:
        async with httpx.AsyncClient(base_url=frontend.url, timeout=WAIT_S) as client:
            return await asyncio.gather(*(one(client) for _ in range(16)))

    assert asyncio.run(everyone()) == [[200] * 20] * 16


def test_64_concurrent_streams(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(step_s=0.004))

    async def one(client: httpx.AsyncClient, n: int) -> str:
        body = {"prompt": "x", "max_tokens": n, "stream": True}
        return text_of(parse((await client.post("/v1/completions", json=body)).text))

    async def everyone() -> list[str]:
        limits = httpx.Limits(max_connections=64)
        async with httpx.AsyncClient(base_url=frontend.url, timeout=WAIT_S, limits=limits) as client:
            return await asyncio.gather(*(one(client, 20 + i) for i in range(64)))

    letters = "".join(chr(0x21 + i) for i in range(94))
    assert asyncio.run(everyone()) == [letters[: 20 + i] for i in range(64)]
    assert frontend.service.metrics.generation_tokens == sum(20 + i for i in range(64))
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)


def test_room_in_the_heaps_is_shared(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    """429 while others have it, 400 where it would never do; and it comes back."""
    backend = start_backend(n_slots=16, output_heap=1024)
    frontend = start_frontend(backend)
    url = "/v1/completions"
    body = {"prompt": "x", "max_tokens": 400, "n": 3}
    error = error_of(frontend.client.post(url, json=body), 400)
    assert "answers of up to 1200 in all; this server holds 8192 and 1024" in error["message"]
    backend.stalled.set()
    answers: list[Any] = []

    def ask() -> None:
        answers.append(httpx.post(f"{frontend.url}{url}", json=body | {"n": 2}, timeout=WAIT_S))

    thread = threading.Thread(target=ask)
    thread.start()
    wait_until(lambda: len(backend.accepted) == 2)
    error = error_of(frontend.client.post(url, json=body | {"n": 1}), 429)
    assert "no room now for prompts of 32 tokens and answers of 400" in error["message"]
    backend.stalled.clear()
    small = frontend.client.post(url, json={"prompt": "y", "max_tokens": 100})  # there is room beside them
    assert small.json()["usage"]["completion_tokens"] == 100
    thread.join()
    assert answers[0].json()["usage"]["completion_tokens"] == 800
    wait_until(lambda: frontend.service.tracker.slots.n_free == 16)
    again = frontend.client.post(url, json=body | {"n": 2})
    assert again.json()["usage"]["completion_tokens"] == 800


def test_choices_without_a_limit_fit_together(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_slots=16, output_heap=1024)
    backend.tokens_per_step = 50
    frontend = start_frontend(backend)
    chat = {"messages": [{"role": "user", "content": "hi"}], "ignore_eos": True}
    for n, tokens in ((1, None), (4, 256)):
        answer = frontend.client.post("/v1/chat/completions", json=chat | {"n": n}).json()
        limit = tokens or 512 - answer["usage"]["prompt_tokens"]
        assert answer["usage"]["completion_tokens"] == n * limit
        wait_until(lambda: frontend.service.tracker.slots.n_free == 16)
