"""What the scheduler does under pressure: chunks, preemption, full slots, cancellation, seeds."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import pytest
from demo_client import Reply, ask, chat, completion, fetch, items, new_client, right, together
from limits import WAIT_S
from process_state import slowed, stopped
from serve_process import Serve, ServeProcess, complete
from waiting import wait_until

from ringbuffer.abi import Command

LONG = {"prompt": "Count from 1 to 150.", "max_tokens": 900, "temperature": 0, "stream": True}


@pytest.mark.slow
def test_long_prompts_in_chunks(serve: Serve) -> None:
    server = serve("--max-prefill-tokens=64", "--max-batch=8")
    chosen = items("lookup_long", 12)
    replies = ask(server.url, [chat(item) for item in chosen])
    assert sum(right(chosen, replies)) >= 11
    stats = server.idle_stats()
    assert stats["prefill_steps"] > stats["prompt_tokens"] / 64 > 12 * 5


@pytest.mark.slow
def test_preemption_changes_no_answer(serve: Serve) -> None:
    """64 pages hold 1024 tokens; the rows want three times that."""
    chosen = items("count", 24) + items("table", 4) + items("repeat", 8)
    bodies = [chat(item, stream=bool(i % 2)) for i, item in enumerate(chosen)]
    scarce, plenty = serve(f"--kv-memory={64 * page_bytes()}", "--max-batch=16"), serve("--max-batch=16")
    with_preemption, without = ask(scarce.url, bodies), ask(plenty.url, bodies)
    assert scarce.idle_stats()["preempted"] > 0
    assert plenty.idle_stats()["preempted"] == 0
    assert [reply.text for reply in with_preemption] == [reply.text for reply in without]
    assert all(right(chosen, without))
    wait_until(lambda: scarce.stats()["free_pages"] == 64, WAIT_S, "all pages free")


def page_bytes() -> int:
    """Keys and values of 16 tokens in fp32: 6 layers, 2 KV heads of 64."""
    return 2 * 4 * 6 * 2 * 64 * 16


@pytest.mark.slow
def test_a_request_that_can_never_fit_fails_alone(serve: Serve) -> None:
    server = serve(f"--kv-memory={32 * page_bytes()}")
    long, short = items("lookup_long", 1)[0], items("add", 1)[0]
    refused, answered = ask(server.url, [chat(long), chat(short)])
    assert refused.status == 400
    assert "maximum context length is 512" in refused.text
    assert right([short], [answered]) == [True]


def submitted(server: ServeProcess) -> int:
    """Requests that the frontends have written into the ring, whether the scheduler has seen them or not."""
    with server.region() as region:
        commands = region.requests >> np.uint64(32) & np.uint64(0xFF)
        return int(np.count_nonzero(commands == Command.SUBMIT))


@pytest.mark.slow
def test_full_slots_are_429_and_come_back(serve: Serve) -> None:
    server = serve("--slots=16", "--max-batch=4")
    total = server.stats()["free_pages"]

    async def flood() -> tuple[list[Reply], list[Reply]]:
        async with new_client(server.url) as client:
            with stopped(server.backends()[0]):  # else the first might end before the last begins
                streams = [asyncio.create_task(fetch(client, LONG)) for _ in range(16)]
                while submitted(server) < 16:
                    await asyncio.sleep(0.01)
                refused = [await fetch(client, {"prompt": "2 + 3 ="}) for _ in range(4)]
            return refused, await asyncio.gather(*streams)

    ((refused, finished),) = together(flood())
    assert [reply.status for reply in refused] == [429] * 4
    assert "all 16 request slots are busy" in refused[0].text
    assert {(reply.text, reply.finish_reason) for reply in finished} == {
        (" " + ", ".join(map(str, range(1, 151))), "stop")
    }
    assert complete(server.client, "2 + 3 =", max_tokens=3).strip() == "5"
    wait_until(lambda: server.stats()["free_pages"] == total, WAIT_S, "all pages free")


def test_clients_that_leave_free_their_pages(server: ServeProcess) -> None:
    before = server.idle_stats()
    endless = {**LONG, "max_tokens": 2000, "ignore_eos": True}  # none ends while this process has to wait
    streams = [server.client.stream("POST", "/v1/completions", json=endless) for _ in range(8)]
    lines = []  # kept: a client leaves when its iterator is dropped
    for stream in streams:
        response: httpx.Response = stream.__enter__()
        lines.append(response.iter_lines())
        next(lines[-1])
    wait_until(lambda: server.stats()["free_pages"] < before["free_pages"], WAIT_S, "pages in use")
    for stream in streams:
        stream.__exit__(None, None, None)
    wait_until(lambda: server.stats()["free_pages"] == before["free_pages"], WAIT_S, "all pages free")
    wait_until(lambda: server.stats()["cancelled"] == before["cancelled"] + 8, WAIT_S, "all cancelled")


@pytest.mark.slow
def test_a_seed_decides_whatever_the_batch(server: ServeProcess) -> None:
    story: dict[str, Any] = {"prompt": "Tell me a story about a fox named Mia.", "max_tokens": 60}
    bodies = [{**story, "temperature": 1.2, "top_p": 0.95, "seed": seed} for seed in range(24)]
    alone = ask(server.url, bodies, clients=1)
    crowd = [completion(item, stream=True) for item in items("count", 40)]
    mixed = ask(server.url, [body for pair in zip(bodies, crowd, strict=False) for body in pair])
    assert [reply.text for reply in mixed[::2]] == [reply.text for reply in alone]
    assert len({reply.text for reply in alone}) > 20


@pytest.mark.slow
def test_where_the_time_of_a_request_that_waited_went(serve: Serve) -> None:
    """With one row in the batch the second request waits for the first: in the queue, not in its prefill."""
    server = serve("--max-batch=1")
    with ThreadPoolExecutor(2) as both:
        long = both.submit(complete, server.client, "Once upon a time", max_tokens=1500, ignore_eos=True)
        wait_until(lambda: server.stats()["running"] == 1, WAIT_S, "the first")
        with stopped(server.backends()[0]):  # else the first might end before the second begins
            short = both.submit(complete, server.client, "Once upon a time", max_tokens=2, ignore_eos=True)
            wait_until(lambda: submitted(server) == 2, WAIT_S, "the second")
        assert long.result()
        assert short.result()
    text = server.client.get("/metrics").text
    sums = dict(re.findall(r"^blink:request_(\w+)_time_seconds_sum\{.*\} (\S+)$", text, re.MULTILINE))
    queue, prefill, decode = (float(sums[name]) for name in ("queue", "prefill", "decode"))
    assert queue > decode / 4  # the second waited as long as the first decoded
    assert prefill < queue


@pytest.mark.slow
def test_steps_that_wait_for_company_change_no_answer(serve: Serve) -> None:
    """The first token of 12 comes as soon as it can, and the others 100 ms apart at least (S25)."""
    body = {"prompt": "Count from 1 to 150.", "temperature": 0, "max_tokens": 12, "ignore_eos": True}
    paced, free = serve("--min-itl=100"), serve()
    began = time.monotonic()
    (waited,) = ask(paced.url, [body])
    assert time.monotonic() - began >= 11 * 0.1
    (at_once,) = ask(free.url, [body])
    assert waited.status == 200
    assert waited.text == at_once.text


@pytest.mark.slow
def test_an_urgent_request_is_answered_before_earlier_ones(serve: Serve) -> None:
    """It has the place of one that runs, whose answer is the same as if nobody had come."""
    server = serve("--max-batch=2", "--scheduling-policy=priority")
    story = {"temperature": 0, "max_tokens": 300, "ignore_eos": True}
    ordinary = [{**story, "prompt": f"Count from {n} to 150."} for n in range(6)]
    urgent = {"prompt": "2 + 3 =", "temperature": 0, "max_tokens": 3, "priority": -5}
    ended: list[int] = []

    async def load() -> list[Reply]:
        async with new_client(server.url) as client:

            async def one(n: int, body: dict[str, Any]) -> Reply:
                reply = await fetch(client, body)
                ended.append(n)
                return reply

            (backend,) = server.backends()
            with stopped(backend):  # likewise
                open_ones = [asyncio.create_task(one(n, body)) for n, body in enumerate(ordinary)]
                while submitted(server) < len(ordinary):
                    await asyncio.sleep(0.01)
            with slowed(backend):  # nor do the first two end before the urgent one is there
                while not ((stats := server.stats())["running"] == 2 and stats["waiting"] == 4):
                    await asyncio.sleep(0.01)
                answer = await one(6, urgent)
            return [*await asyncio.gather(*open_ones), answer]

    (replies,) = together(load())
    assert ended[0] == 6
    assert replies[6].text.strip() == "5"
    assert server.idle_stats()["preempted"] == 1
    assert [reply.text for reply in replies[:6]] == [
        reply.text for reply in ask(server.url, ordinary, clients=1)
    ]
