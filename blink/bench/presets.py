"""Loads that others publish results of, by name: lengths, how many ask, and the service that is wanted.

What the others' data and clients have that is not here is said with each: texts, counts of requests, traces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from blink.bench.levels import Level
from blink.bench.metrics import Slo
from blink.bench.trace import Lengths, fixed, uniform

LOADS = ("rate", "concurrency", "conversations", "agents")  # one of which a run has


@dataclass(frozen=True)
class Preset:
    """`values` are of ServeOptions."""

    source: str
    differs: str  # from the source, in lengths or in how requests are sent
    values: dict[str, Any]


MLPERF = "MLPerf Inference 6.1, llama3.1-8b"
SUMMARIES = {  # of news articles; assumed but for the longest answer
    "input": Lengths(778, 0.5, 64, 2540),
    "output": Lengths(73, 0.3, 16, 128),
}
MLPERF_DIFFERS = (
    "its 13,368 news articles are not here: lengths are assumed, lognormal about 778 tokens in and 73 out; "
    "it looks for the highest rate that keeps the levels, here some are given"
)
INFERENCEX = "InferenceX (InferenceMAX), single turn"
INFERENCEX_DIFFERS = "a window ends by the clock, and not after ten requests of each stream"
STREAMS = (4, 8, 16, 32, 64)
SILYBENCH = "silybench"
SILYBENCH_DIFFERS = (
    "repeats are the caller's; a request's mean gap stands for the median of its gaps in the goodput"
)
USERS = (1, 4, 16, 32, 64, 128, 256, 512)
READING = (Level("ttft", "p99", 2000.0), Level("itl", "p50", 50.0))
LONG = (Level("ttft", "p99", 30_000.0), Level("itl", "p50", 50.0))


def _mlperf(scenario: str, ttft: float, tpot: float, rates: tuple[float, ...]) -> Preset:
    levels = Level("ttft", "p99", ttft), Level("tpot", "p99", tpot)
    asked = {"rate": rates, "levels": levels, "slo": Slo(ttft=ttft, tpot=tpot)}
    return Preset(f"{MLPERF}, {scenario}", MLPERF_DIFFERS, SUMMARIES | asked)


def _inferencex(inputs: int, outputs: int) -> Preset:
    lengths = {"input": uniform(inputs * 4 // 5, inputs), "output": uniform(outputs * 4 // 5, outputs)}
    return Preset(INFERENCEX, INFERENCEX_DIFFERS, lengths | {"concurrency": STREAMS})


def _silybench(inputs: int, outputs: int) -> Preset:
    asked = {"concurrency": USERS, "levels": READING, "slo": Slo(ttft=2000.0, tpot=50.0)}
    lengths = {"input": fixed(inputs), "output": fixed(outputs)}
    return Preset(SILYBENCH, SILYBENCH_DIFFERS, lengths | asked)


PRESETS = {
    "mlperf-8b-server": _mlperf("server", 2000.0, 100.0, (10.0, 20.0, 40.0, 60.0, 80.0)),
    "mlperf-8b-interactive": _mlperf("interactive", 500.0, 30.0, (10.0, 20.0, 40.0, 60.0)),
    "inferencex-1k-1k": _inferencex(1024, 1024),
    "inferencex-1k-8k": _inferencex(1024, 8192),
    "inferencex-8k-1k": _inferencex(8192, 1024),
    "silybench-128-128": _silybench(128, 128),
    "silybench-1024-128": _silybench(1024, 128),
    "silybench-128-1024": _silybench(128, 1024),
    "silybench-2048-2048": _silybench(2048, 2048),
    "silybench-8192-512": _silybench(8192, 512),
    "silybench-toolcall": Preset(
        SILYBENCH,
        SILYBENCH_DIFFERS,
        {
            "input": fixed(100_000),
            "output": fixed(512),
            "concurrency": (1, 2, 4, 8),
            "levels": LONG,
            "slo": Slo(ttft=30_000.0, tpot=50.0),
        },
    ),
    "agents": Preset(
        "InferenceX, AgentX",
        "sessions have the published statistics of its traces (README.md), in contexts of 32,768 tokens",
        {"agents": (8, 32), "duration_s": 180.0, "drop": 0.2},
    ),
}


def chosen_with(preset: str | None, chosen: dict[str, Any]) -> dict[str, Any]:
    """The preset's values under those that were `chosen`: another load takes the place of its load."""
    if preset is None:
        return chosen
    values = PRESETS[preset].values
    if chosen.keys() & set(LOADS):
        values = {name: value for name, value in values.items() if name not in LOADS}
    return values | chosen


def described(preset: str | None) -> dict[str, str] | None:
    """What a result says of its preset."""
    if preset is None:
        return None
    found = PRESETS[preset]
    return {"name": preset, "source": found.source, "differs": found.differs}


def listing() -> str:
    """The presets, for a terminal."""
    lines = ["presets:"]
    for name, preset in PRESETS.items():
        lines.append(f"  {name:<22} {preset.source}")
    return "\n".join(lines)
