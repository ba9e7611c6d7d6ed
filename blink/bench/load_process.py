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
from blink.bench.prompts import Prompts
from blink.bench.records import Lag, Order, Shard, Target
from nic_frontend.open_files import allow_most

TICK_S = 0.005
REFUSED_S = 0.05  # until a stream of a closed loop tries again after a refusal


def main(pipe: Pipe, target: Target, prompts: Prompts) -> None:
    """Ends when the other end of the pipe is closed, which the parent's death does too."""
    allow_most()
    while True:
        try:
            order: Order = pipe.recv()
        except EOFError:
            return
        client = Client(target, prompts, order.first_prompt)
        lag = uvloop.run(_carry_out(order, client))
        try:
            pipe.send(Shard(client.outcomes(), lag))
        except BrokenPipeError:
            return


async def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(1.0)
    os._exit(1)  # in the middle of a run: nobody is left to take the report


async def _carry_out(order: Order, client: Client) -> Lag:
    gc.collect()
    gc.disable()  # a collection would be a pause of all streams
    late: list[float] = []
    ticks = asyncio.create_task(_tick(late))
    watch = asyncio.create_task(_end_with_parent(os.getppid()))
    end = order.start_ns + order.window_ns
    await _until(order.start_ns)
    del late[:]
    cpu, began = time.process_time(), time.monotonic()
    open_requests: set[asyncio.Task[object]] = set()
    try:
        if order.streams is None:
            await _open_loop(order, client, open_requests)
        else:
            indices = _indices(order)
            open_requests |= {
                asyncio.create_task(_stream(order, client, indices, order.first + order.step * i, end))
                for i in range(order.streams)
            }
        await _until(end)
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


async def _open_loop(order: Order, client: Client, open_requests: set[asyncio.Task[object]]) -> None:
    trace = order.trace
    for i in range(order.first, len(trace), order.step):
        due = order.start_ns + int(trace.arrivals_s[i] * 1e9)
        await _until(due)
        sending = client.send(i, int(trace.inputs[i]), int(trace.outputs[i]), due)
        open_requests.add(asyncio.create_task(sending))


async def _stream(order: Order, client: Client, indices: Iterator[int], number: int, end_ns: int) -> None:
    """One of a closed loop's streams: a request when the one before has ended."""
    while time.monotonic_ns() < end_ns:
        index = next(indices)
        row = index % len(order.trace)
        lengths = int(order.trace.inputs[row]), int(order.trace.outputs[row])
        if not await client.send(index, *lengths, stream=number):
            await asyncio.sleep(REFUSED_S)


def _indices(order: Order) -> Iterator[int]:
    index = order.first
    while True:
        yield index
        index += order.step


async def _until(moment_ns: int) -> None:
    while (left := moment_ns - time.monotonic_ns()) > 0:
        await asyncio.sleep(left / 1e9)


async def _tick(late: list[float]) -> None:
    while True:
        before = time.monotonic()
        await asyncio.sleep(TICK_S)
        late.append((time.monotonic() - before - TICK_S) * 1e3)
