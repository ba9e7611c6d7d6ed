"""The lanes of one load process: each holds one session after the other until the window ends."""

from __future__ import annotations

import asyncio
import time

from blink.bench.client import Client
from blink.bench.clock import REFUSED_S, until
from blink.bench.histories import KINDS, History
from blink.bench.prompts import Prompts
from blink.bench.records import AgentOrder, Outcome
from blink.bench.stream import Reading


async def run_lanes(
    order: AgentOrder, client: Client, prompts: Prompts, open_requests: set[asyncio.Task[object]]
) -> None:
    """Until the window ends; what is open then may go on."""
    open_requests |= {
        asyncio.create_task(_lane(order, client, prompts, lane))
        for lane in range(order.first, order.workload.lanes, order.step)
    }
    await until(order.start_ns + order.window_ns)


async def _lane(order: AgentOrder, client: Client, prompts: Prompts, lane: int) -> None:
    """A failure ends the session that it is in. A lane that is due within the window begins, however late
    this process wakes up: a warm-up's window is short.
    """
    work, end = order.workload, order.start_ns + order.window_ns
    due = order.start_ns + int(work.starts_s[lane] * 1e9)
    if due >= end:
        return
    await until(due)
    session, turn = lane, int(work.first_turns[lane])
    while True:
        if not await _session(order, client, prompts, session, turn):
            await asyncio.sleep(REFUSED_S)
        if time.monotonic_ns() >= end:
            return
        session, turn = session + work.lanes, 0


async def _session(
    order: AgentOrder, client: Client, prompts: Prompts, session: int, first_turn: int
) -> bool:
    """Its turns from the first one on; whether every turn that there was time for succeeded."""
    work, end = order.workload, order.start_ns + order.window_ns
    plan, number = work.plan(session), order.first_prompt + 1 + session * work.stride
    history = KINDS[work.kind](prompts, order.first_prompt, work.system_tokens)
    if first_turn:
        history.past(number + work.stride - 1, int(plan.said()[first_turn]))
    firsts = plan.firsts()
    for turn in range(first_turn, plan.turns):
        if turn > first_turn:
            await until(min(end, time.monotonic_ns() + int(plan.waits_s[turn] * 1e9)))
            if time.monotonic_ns() >= end:
                return True
        requests = range(int(firsts[turn]), int(firsts[turn] + plan.widths[turn]))
        branches = [history, *(history.fork() for _ in requests[1:])]
        answered = await asyncio.gather(
            *(
                client.ask(
                    branch.question(number + request, int(plan.new[request])),
                    int(plan.answers[request]),
                    session * work.stride + request,
                    turn,
                )
                for branch, request in zip(branches, requests, strict=True)
            )
        )
        if not all(outcome.ok for outcome, _ in answered):
            return False
        if turn + 1 < plan.turns and not _fan_in(history, answered):
            return False
    return True


def _fan_in(history: History, answered: list[tuple[Outcome, Reading]]) -> bool:
    """The answers of a turn join the history, the first as what was said, the others as results. Whether all
    of them were told."""
    for i, (outcome, reading) in enumerate(answered):
        try:
            if i == 0:
                history.answer(reading)
            else:
                history.result(reading)
        except ValueError as error:
            outcome.error = str(error)
            return False
    return True
