"""A process that makes load: takes orders from a pipe, sends the requests, reports what came of them."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection as Pipe

import numpy as np
import uvloop

from blink.bench.client import Client
from blink.bench.clock import REFUSED_S, until
from blink.bench.histories import KINDS
from blink.bench.lanes import run_lanes
from blink.bench.prompts import Prompts
from blink.bench.records import AgentOrder, AnyOrder, ConversationOrder, Lag, Order, Shard, Target
from nic_frontend.http.open_files import allow_most

TICK_S = 0.005


def main(pipe: Pipe, target: Target, prompts: Prompts) -> None:
    """Ends when the other end of the pipe is closed, which the parent's death does too."""
    allow_most()
    while True:
        try:
            order: AnyOrder = pipe.recv()
        except EOFError:
            return
        client = Client(target, _fields(order))
        lag = uvloop.run(_carry_out(order, client, prompts))
        try:
            pipe.send(Shard(client.outcomes(), lag))
        except BrokenPipeError:
            return


def _fields(order: AnyOrder) -> dict[str, bool]:
    """What requests have to ask for so that their answers can join a history."""
    if isinstance(order, Order):
        return {}
    if isinstance(order, ConversationOrder) and order.workload.turns == 1:
        return {}
    return KINDS[order.workload.kind].fields


async def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(1.0)
    os._exit(1)  # in the middle of a run: nobody is left to take the report


async def _carry_out(order: AnyOrder, client: Client, prompts: Prompts) -> Lag:
    gc.collect()
    gc.disable()  # a collection would be a pause of all streams
    late: list[float] = []
    ticks = asyncio.create_task(_tick(late))
    watch = asyncio.create_task(_end_with_parent(os.getppid()))
    await until(order.start_ns)
    del late[:]
    cpu, began = time.process_time(), time.monotonic()
    open_requests: set[asyncio.Task[object]] = set()
    try:
        if isinstance(order, ConversationOrder):
            await _conversations(order, client, prompts, open_requests)
        elif isinstance(order, AgentOrder):
            await run_lanes(order, client, prompts, open_requests)
        else:
            await _window(order, client, prompts, open_requests)
        share = (time.process_time() - cpu) / (time.monotonic() - began)
        if open_requests:
            await asyncio.wait(open_requests, timeout=order.drain_ns / 1e9)
    finally:
        ticks.cancel()
        watch.cancel()
        for request in open_requests:
            request.cancel()
        ended = await asyncio.gather(*open_requests, return_exceptions=True)
        client.close()
        gc.enable()
    for error in ended:
        if isinstance(error, Exception):
            raise error  # a mistake of ours: what a server does wrong is an outcome
    return Lag(np.array(late), share)


async def _window(
    order: Order, client: Client, prompts: Prompts, open_requests: set[asyncio.Task[object]]
) -> None:
    """Until the window ends; what it started may go on."""
    end = order.start_ns + order.window_ns
    if order.streams is None:
        await _open_loop(order, client, prompts, open_requests)
    else:
        indices = _indices(order)
        open_requests |= {
            asyncio.create_task(_stream(order, client, prompts, indices, order.first + order.step * i, end))
            for i in range(order.streams)
        }
    await until(end)


async def _open_loop(
    order: Order, client: Client, prompts: Prompts, open_requests: set[asyncio.Task[object]]
) -> None:
    for i in range(order.first, len(order.trace), order.step):
        due = order.start_ns + int(order.trace.arrivals_s[i] * 1e9)
        await until(due)
        open_requests.add(asyncio.create_task(_request(order, client, prompts, i, due)))


async def _stream(
    order: Order, client: Client, prompts: Prompts, indices: Iterator[int], number: int, end_ns: int
) -> None:
    """One of a closed loop's streams: a request when the one before has ended."""
    while time.monotonic_ns() < end_ns:
        if not await _request(order, client, prompts, next(indices), stream=number):
            await asyncio.sleep(REFUSED_S)


async def _request(
    order: Order,
    client: Client,
    prompts: Prompts,
    index: int,
    due_ns: int | None = None,
    stream: int | None = None,
) -> bool:
    row = index % len(order.trace)
    prompt = prompts.ids(order.first_prompt + index, int(order.trace.inputs[row]))
    return await client.send(f'"prompt":[{prompt}]', int(order.trace.outputs[row]), index, due_ns, stream)


def _indices(order: Order) -> Iterator[int]:
    index = order.first
    while True:
        yield index
        index += order.step


async def _conversations(
    order: ConversationOrder, client: Client, prompts: Prompts, open_requests: set[asyncio.Task[object]]
) -> None:
    """Until all have ended, or no further turn may start; what is open then may go on."""
    open_requests |= {
        asyncio.create_task(_user(order, client, prompts, user))
        for user in range(order.first, order.workload.users, order.step)
    }
    await asyncio.wait(open_requests, timeout=order.limit_ns / 1e9)


async def _user(order: ConversationOrder, client: Client, prompts: Prompts, user: int) -> None:
    """One conversation after the other. A failure ends the conversation that it is in."""
    await until(order.start_ns + min(order.limit_ns, int(order.workload.starts_s[user] * 1e9)))
    for conversation in order.workload.of_user(user):
        if not await _converse(order, client, prompts, conversation):
            await asyncio.sleep(REFUSED_S)


async def _converse(order: ConversationOrder, client: Client, prompts: Prompts, conversation: int) -> bool:
    """Whether every turn that there was time for succeeded."""
    workload, end = order.workload, order.start_ns + order.limit_ns
    system = order.first_prompt + workload.inputs.size + conversation % workload.system_prompts
    history = KINDS[workload.kind](prompts, system, workload.system_tokens)
    for turn in range(workload.turns):
        await until(min(end, time.monotonic_ns() + int(workload.think_s[conversation, turn] * 1e9)))
        if time.monotonic_ns() >= end:
            return True
        index = conversation * workload.turns + turn
        question = history.question(order.first_prompt + index, int(workload.inputs[conversation, turn]))
        outcome, answer = await client.ask(question, int(workload.outputs[conversation, turn]), index, turn)
        if outcome.ok and turn + 1 < workload.turns:
            try:
                history.answer(answer)
            except ValueError as error:
                outcome.error = str(error)
        if not outcome.ok:
            return False
    return True


async def _tick(late: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(TICK_S)
        late.append((time.monotonic() - before - TICK_S) * 1e3)
