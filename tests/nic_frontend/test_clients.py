"""Whose request it is, what each client may hold, and how long the prompts of one request may be together."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from harness import StartBackend, StartFrontend, error_of, wait_until
from limits import WAIT_S

from nic_frontend.http.asgi import Scope
from nic_frontend.http.clients import client_of
from nic_frontend.ring.shares import Need
from nic_frontend.ring.slot_tracker import Size, SlotTracker
from ringbuffer.heap import LeaseHeaps

ONE = Size(5, 9)  # a granule of each heap


def scope(port: int) -> Scope:
    return {"type": "http", "client": ("127.0.0.1", port)}


def test_clients_are_told_apart_by_keys_or_else_by_connections() -> None:
    assert client_of(scope(1), None) == client_of(scope(1), None)
    assert client_of(scope(1), None) != client_of(scope(2), None)
    assert client_of(scope(1), b"key") == client_of(scope(2), b"key") != client_of(scope(2), b"other")
    assert client_of({"type": "http"}, None) < 2**32


def test_each_descriptor_says_for_whom(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    backend = start_backend()
    frontend = start_frontend(backend)
    body = {"prompt": ["a", "b"], "n": 2, "max_tokens": 1}
    for _ in range(2):
        assert frontend.client.post("/v1/completions", json=body).status_code == 200
    assert httpx.post(f"{frontend.url}/v1/completions", json=body, timeout=WAIT_S).status_code == 200
    clients = [int(row.descriptor["client"]) for row in backend.accepted if row.descriptor is not None]
    assert len(clients) == 12
    assert len(set(clients[:8])) == 1, "of one connection"
    assert len(set(clients)) == 2


def test_whoever_holds_something_leaves_as_much_to_others() -> None:
    slots = SlotTracker(16, 16 * 1024, 16 * 1024)
    assert not slots.exceeds_share([ONE] * 16, 1), "whoever holds nothing may have anything"
    assert len(slots.take([ONE] * 6, 1)) == 6
    assert not slots.exceeds_share([ONE] * 2, 1)
    assert slots.exceeds_share([ONE] * 3, 1)
    assert not slots.exceeds_share([ONE] * 10, 2)
    slots.take([ONE] * 2, 1)
    assert slots.exceeds_share([ONE], 1)
    slots.releasing(0)
    assert not slots.exceeds_share([ONE], 1), "what has ended is not held any more"
    slots.free(0)
    assert not slots.exceeds_share([ONE], 1)


def test_shares_are_of_the_heaps_as_well() -> None:
    room = LeaseHeaps(1024, 1024).rooms(Size(300, 300).extent)
    slots = SlotTracker(16, 1024, 1024)
    assert slots.need([Size(300, 300)]) == Need(1, *room)
    slots.take([Size(300, 300)], 1)
    assert slots.exceeds_share([Size(400, 10)], 1)
    assert slots.exceeds_share([Size(10, 400)], 1)
    assert not slots.exceeds_share([Size(10, 10)], 1)
    assert not slots.exceeds_share([Size(400, 400)], 2)


def test_nothing_is_held_for_ever() -> None:
    slots = SlotTracker(4, 1024, 1024)

    async def scenario() -> None:
        for _ in range(3):
            taken = slots.take([ONE] * 4, 1)
            for slot in taken[:2]:
                slots.releasing(slot)
            asyncio.get_running_loop().call_later(0.01, lambda taken=taken: [*map(slots.free, taken[:2])])
            assert len(await slots.wait([ONE], WAIT_S, 2)) == 1
            slots.reset()

    asyncio.run(asyncio.wait_for(scenario(), 2 * WAIT_S))
    assert not slots.exceeds_share([ONE] * 4, 1)


def test_prompts_of_one_request_have_a_largest_size(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend(), max_prompt_tokens=100)

    def ask(**body: Any) -> httpx.Response:
        return frontend.client.post("/v1/completions", json={"max_tokens": 1, **body})

    assert ask(prompt=[5] * 101).status_code == 200, "the context bounds one prompt"
    assert ask(prompt=[[5] * 50] * 2).status_code == 200
    for body in ({"prompt": [[5] * 51] * 2}, {"prompt": [5] * 26, "n": 4}):
        told = error_of(ask(**body), 400)
        assert "--max-prompt-tokens" in told["message"]
        assert told["param"] == "prompt"
    wait_until(lambda: frontend.service.tracker.slots.n_free == 64)
