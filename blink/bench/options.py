"""What `blink bench serve` is told, and its flags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from blink.bench import antagonists, cpu_time, trace
from blink.bench.agents import (
    ANSWERS,
    CONTEXT,
    NEW_TOKENS,
    PREFIX,
    SESSION_TURNS,
    TOOLS_AND_USERS,
    session_turns,
)
from blink.bench.conversations import NO_THINKING, Waits, think
from blink.bench.cpu_time import Watched
from blink.bench.histories import KINDS
from blink.bench.levels import Level, levels
from blink.bench.metrics import Slo, slo
from blink.bench.presets import PRESETS
from blink.bench.trace import CHAT_INPUT, CHAT_OUTPUT, Lengths
from blink.files import writable_directory, writable_file
from blink.flags import Flag, cores, count, ordinal, seconds

T = TypeVar("T")
API_KEY_VARIABLE = "BLINK_BENCH_API_KEY"


@dataclass(frozen=True)
class ServeOptions:
    """Units are in the flags' texts below."""

    preset: str | None = None
    rate: tuple[float, ...] | None = None
    concurrency: tuple[int, ...] | None = None
    conversations: tuple[int, ...] | None = None
    agents: tuple[int, ...] | None = None
    duration_s: float = 60.0
    drain_s: float = 60.0
    drop: float = 0.1
    warmup: int = 8
    pause_s: float = 1.0
    every_s: float | None = None
    input: Lengths = CHAT_INPUT
    output: Lengths = CHAT_OUTPUT
    seed: int = 1
    tokens: tuple[int, int] = (100, 1000)
    respect_eos: bool = False
    clients: int = 1
    model: str | None = None
    api_key: str | None = None
    turns: int = 6
    each: tuple[int, ...] = (1,)
    system: int = 2048
    system_prompts: int = 1
    think: Waits = NO_THINKING
    stagger_s: float = 0.0
    prompts: str = "ids"
    session_turns: Lengths = SESSION_TURNS
    context: int = CONTEXT
    slo: Slo | None = None
    levels: tuple[Level, ...] | None = None
    energy: bool = False
    gpu: int = 0
    watch: tuple[Watched, ...] | None = None
    antagonists: tuple[str, ...] | None = None
    per_core: tuple[int, ...] = (0, 1, 4)
    cores: tuple[int, ...] | None = None
    name: str | None = None
    json: Path | None = None
    plot: Path | None = None


# Instead of the defaults above, with --agents
OF_AGENTS = {"input": NEW_TOKENS, "output": ANSWERS, "system": PREFIX, "think": TOOLS_AND_USERS}


def many(parse: Callable[[str], T], separator: str = ",") -> Callable[[str], tuple[T, ...]]:
    return lambda text: tuple(parse(part) for part in text.split(separator))


def rate(text: str) -> float:
    """Requests a second, more than 0."""
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a rate in requests/s") from None
    if not 0 < value < 1e6:
        raise ValueError(f"{text} is not a rate in requests/s")
    return value


def share(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1:
        raise ValueError(f"{text} is not a share of at least 0 and less than 1")
    return value


def token_range(text: str) -> tuple[int, int]:
    """Of "LOW-HIGH", HIGH excluded."""
    low, dash, high = text.partition("-")
    if not (dash and low.isdigit() and high.isdigit() and int(low) + 1 < int(high)):
        raise ValueError(f"'{text}' is not LOW-HIGH")
    return int(low), int(high)


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


LOAD = (
    Flag("--preset", "preset", "NAME", "a load that others publish results of (below): lengths, streams or "
         "rates, levels of service; flags that are given as well take the place of its own",
         choices=tuple(PRESETS)),
    Flag("--rate", "rate", "R[,R...]", "open loop: Poisson arrivals at R requests/s, one window a rate",
         many(rate)),
    Flag("--concurrency", "concurrency", "N[,N...]",
         "closed loop: N requests open at a time, one window an N",
         many(count)),
    Flag("--conversations", "conversations", "N[,N...]",
         "N users at a time, each in a conversation; one window an N, as long as all conversations take",
         many(count)),
    Flag("--agents", "agents", "LANES[,LANES...]",
         "LANES agents at a time, each with one session after the other; one window a number of lanes",
         many(count)),
    Flag("--input", "input", "LENGTHS",
         "tokens of prompts, in conversations of questions, of agents that arrive in a turn "
         f"({NEW_TOKENS}): TOKENS, LOW-HIGH for a uniform length, or MEAN:SIGMA:LOW-HIGH for a lognormal one",
         trace.lengths),
    Flag("--output", "output", "LENGTHS",
         f"tokens of answers, written likewise, of agents {ANSWERS}", trace.lengths),
    Flag("--seed", "seed", "N", "of lengths, arrivals and prompts", ordinal),
    Flag("--duration", "duration_s", "SECONDS",
         "of each window; of conversations, after which no turn begins any more", seconds),
    Flag("--drop", "drop", "SHARE", "of each window that is not measured, at its beginning", share),
    Flag("--drain", "drain_s", "SECONDS", "after a window, until open requests count as failed", seconds),
    Flag("--warmup", "warmup", "N", "requests before the first window", ordinal),
    Flag("--pause", "pause_s", "SECONDS", "between two windows", seconds),
    Flag("--every", "every_s", "SECONDS", "windows begin at multiples of this on the clock, so that several "
         "runs on one machine are disturbed together (default: one after the other)", seconds),
    Flag("--tokens", "tokens", "LOW-HIGH", "range of the prompts' token ids, HIGH excluded", token_range,
         show=lambda value: f"{value[0]}-{value[1]}"),
    Flag("--respect-eos", "respect_eos", None,
         "do not send ignore_eos, which some servers refuse; an answer that ends early is then complete",
         switch=True),
    Flag("--clients", "clients", "N", "processes that make the load", count),
    Flag("--model", "model", "NAME", "the model's name in requests (default: the server's first)"),
    Flag("--api-key", "api_key", "KEY",
         f"bearer token for the server (default: ${API_KEY_VARIABLE}, or none)",
         secret=True),
)  # fmt: skip
CONVERSATIONS = (
    Flag("--turns", "turns", "N", "questions of a conversation", count),
    Flag("--each", "each", "K[,K...]", "conversations that each user holds, one after the other: one K for "
         "each N of --conversations, or one for all", many(count), show=_shown),
    Flag("--system-prompts", "system_prompts", "N", "different ones, dealt out in turn", count),
)  # fmt: skip
AGENTS = (
    Flag("--session-turns", "session_turns", "LENGTHS",
         "turns of a session, written as --input's tokens, if nothing ends it before", session_turns),
    Flag("--context", "context", "TOKENS", "of prompt and answer; a session ends before a turn with more",
         count),
)  # fmt: skip
HISTORIES = (
    Flag("--system", "system", "TOKENS", "of the system prompt that conversations begin with, of agents "
         f"{PREFIX} with their tools; 0 for none", ordinal),
    Flag("--think", "think", "TIME", "between an answer and the next question, of agents as tools and users "
         "take it: SECONDS, or exp:SECONDS for exponential times of that mean", think),
    Flag("--stagger", "stagger_s", "SECONDS", "over which the users or lanes begin, evenly; with 0 they "
         "begin at once", seconds),
    Flag("--prompts", "prompts", None, "ids: completions of token ids, for servers that know "
         "return_token_ids; text: completions of text; chat: chat completions. In text and chat a word "
         "stands for a token",
         choices=tuple(KINDS)),
)  # fmt: skip
MEASUREMENT = (
    Flag("--slo", "slo", "BOUNDS", "goodput counts requests within all of them, for example "
         "'ttft:200 tpot:20 itl:100', milliseconds; tpot without the first token, itl the longest gap",
         lambda text: slo(text.split())),
    Flag("--levels", "levels", "LEVELS", "say of each window whether it kept all of them, for example "
         "'ttft:p99:2000 itl:p50:50', milliseconds; a failed request breaks them", levels),
    Flag("--energy", "energy", None, "measure the energy of a GPU in this machine", switch=True),
    Flag("--gpu", "gpu", "N", "whose energy, counted from 0", ordinal),
    Flag("--watch-pid", "watch", "NAME=PID[,PID]", "CPU time of processes and their descendants; several: "
         "separated by spaces", many(cpu_time.watched, " ")),
    Flag("--antagonists", "antagonists", "KIND[,KIND...]", "measure each window under CPU antagonists too: "
         f"{', '.join(antagonists.KINDS)}", antagonists.kinds),
    Flag("--per-core", "per_core", "N[,N...]", "antagonist threads on each core of --cores, all windows an N",
         many(ordinal), show=_shown),
    Flag("--cores", "cores", "CORES", "where antagonists run, for example 0-11", cores),
    Flag("--name", "name", "NAME", "of the server in results (default: its URL)"),
    Flag("--json", "json", "FILE", "write everything that was measured", check=writable_file),
    Flag("--plot", "plot", "DIR", "draw latency and throughput over load, and the lengths",
         check=writable_directory),
)  # fmt: skip
FLAGS = (*LOAD, *CONVERSATIONS, *AGENTS, *HISTORIES, *MEASUREMENT)
