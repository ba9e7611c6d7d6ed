"""A day of conversations: when they begin, and how long their turns are and how far apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.uint64]
Counts = NDArray[np.uint32]


@dataclass(frozen=True)
class Shape:
    """What a day's load is like. Times in seconds, lengths in tokens.

    The day's curve is pressed into `day_s`; turns and the pauses between them keep their lengths.
    """

    day_s: float
    sessions_per_node_s: float  # at the day's peak, before bursts
    apps: int = 64  # each with a system prompt of its own, chosen with weights 1/rank
    system_tokens: int = 1024
    max_context: int = 4096
    mean_turns: float = 5.0  # geometric
    question: tuple[float, float] = (160.0, 0.8)  # log-normal: median, sigma
    answer: tuple[float, float] = (140.0, 0.7)
    think_s: tuple[float, float] = (12.0, 0.9)
    burst: float = 2.0  # times the curve, while a burst lasts
    burst_s: float = 10.0  # on average
    calm_s: float = 50.0


@dataclass(frozen=True)
class Load:
    """`first_turn` [n + 1]: the turns of session i are [first_turn[i], first_turn[i + 1])."""

    arrival_ns: Times
    app: Counts
    first_turn: Counts
    question: Counts
    answer: Counts
    think_ns: Times


def curve(part_of_day: NDArray[np.float64]) -> NDArray[np.float64]:
    """1 at the peak, in the afternoon, and a quarter of it at night."""
    return 0.625 - 0.375 * np.cos(2 * np.pi * (part_of_day - 0.125))


def arrivals(shape: Shape, n_nodes: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A Poisson process whose rate follows the curve, and doubles in bursts that all nodes share."""
    peak = shape.sessions_per_node_s * n_nodes * shape.burst
    times = np.cumsum(rng.exponential(1 / peak, int(peak * shape.day_s * 1.1) + 100))
    times = times[times < shape.day_s]
    switches, bursting = [0.0], False
    while switches[-1] < shape.day_s:
        bursting = not bursting
        switches.append(switches[-1] + rng.exponential(shape.calm_s if bursting else shape.burst_s))
    in_burst = np.searchsorted(switches, times, side="right") % 2 == 0
    rate = curve(times / shape.day_s) * np.where(in_burst, 1.0, 1 / shape.burst)
    kept: NDArray[np.float64] = times[rng.random(len(times)) < rate]
    return kept


def make(shape: Shape, n_nodes: int, seed: int) -> Load:
    rng = np.random.default_rng(seed)
    at = arrivals(shape, n_nodes, rng)
    n = len(at)
    weights = 1 / np.arange(1, shape.apps + 1)
    app = rng.choice(shape.apps, n, p=weights / weights.sum())
    turns = rng.geometric(1 / shape.mean_turns, n)

    def drawn(what: tuple[float, float], least: float) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.maximum(rng.lognormal(np.log(what[0]), what[1], turns.sum()), least)
        return found

    question, answer = drawn(shape.question, 8).astype(int), drawn(shape.answer, 4).astype(int)
    session = np.repeat(np.arange(n), turns)
    first = np.concatenate([[0], np.cumsum(turns)])
    total = np.cumsum(question + answer)
    before = np.concatenate([[0], total])[first[:-1]]
    fits = (
        shape.system_tokens + total - before[session] <= shape.max_context
    )  # a session ends where it is full
    kept = np.bincount(session[fits], minlength=n)
    return Load(
        arrival_ns=(at * 1e9).astype(np.uint64),
        app=app.astype(np.uint32),
        first_turn=np.concatenate([[0], np.cumsum(kept)]).astype(np.uint32),
        question=question[fits].astype(np.uint32),
        answer=answer[fits].astype(np.uint32),
        think_ns=(drawn(shape.think_s, 1)[fits] * 1e9).astype(np.uint64),
    )


def conversations(users: int, turns: int, question: int, answer: int) -> Load:
    """As `blink bench serve --conversations` holds them: all begin at once, and nobody thinks."""

    def same(value: int) -> Counts:
        return np.full(users * turns, value, np.uint32)

    return Load(
        arrival_ns=np.arange(users, dtype=np.uint64) * 10_000 + 1_000_000,
        app=np.zeros(users, np.uint32),
        first_turn=(np.arange(users + 1) * turns).astype(np.uint32),
        question=same(question),
        answer=same(answer),
        think_ns=np.zeros(users * turns, np.uint64),
    )
