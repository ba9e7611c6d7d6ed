"""Presets of `blink bench serve` as parts of a comparison: what context they need, and how long they take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.sweep_plan import PACES

from blink.bench.agents import CONTEXT
from blink.bench.presets import PRESETS
from gpu_backend.models.fields import UnsupportedModel
from gpu_backend.models.registry import read_model

AGENTS = "agents"  # a preset, and a part of peers.py with flags of its own
USUAL_CONTEXT = 8192  # tokens; more than parts that are no presets need
# Windows are planned by these guesses on the safe side for 8B on one H200; no figure depends on them.
PREFILL_TOKENS_PER_S = 20_000.0
TPOT_S = 0.015  # of models that PACES does not have
LEAST_WINDOW_S = 20.0
DRAIN_SPARE_S = 5.0
OVERHEAD_S = 4.0  # of a window, besides its duration and drain: lead, reading, pause
WARM_UP_REQUESTS = 8  # at once, before the first window


def is_preset(part: str) -> bool:
    return part in PRESETS and part != AGENTS


def context_of(part: str) -> int | None:
    """Of the longest request, in tokens; None for a part that USUAL_CONTEXT is enough for."""
    if part == AGENTS:
        return CONTEXT
    if not is_preset(part):
        return None
    values = PRESETS[part].values
    return int(values["input"].high + values["output"].high)


def context_for(parts: Sequence[str], model: Path) -> int | None:
    """With which both servers serve all of the parts; None where their own is enough. Raises SystemExit where
    the model's is shorter.
    """
    needs = {part: needed for part in parts if (needed := context_of(part)) is not None}
    if not needs:
        return None
    longest = max(needs, key=lambda part: needs[part])
    try:
        own = read_model(model).max_context
    except (UnsupportedModel, FileNotFoundError) as error:
        raise SystemExit(f"{model.name} cannot be served: {error}") from None
    if own < needs[longest]:
        raise SystemExit(
            f"{longest}: its requests have up to {needs[longest]} tokens, and the context of {model.name} is "
            f"{own}: choose a preset of shorter ones, or another model"
        )
    return max(needs[longest], min(USUAL_CONTEXT, own))


@dataclass(frozen=True)
class PresetWindows:
    """A preset under some of its loads, a window each."""

    preset: str
    loads: tuple[float, ...]
    model: str

    @property
    def flags(self) -> list[str]:
        """Of `blink bench serve`."""
        chosen = ",".join(f"{load:g}" for load in self.loads)
        return [f"--preset={self.preset}", f"--{kind_of(self.preset)}={chosen}"]

    @property
    def is_whole(self) -> bool:
        return self.loads == loads_of(self.preset)

    @property
    def window_s(self) -> float:
        """As long as the longest request at least: then each stream ends one within it."""
        return max(LEAST_WINDOW_S, self._request_s(self._streams))

    @property
    def drain_s(self) -> float:
        """For the longest request, behind what has come in a window of a rate that is too high."""
        backlog_s = self.window_s if kind_of(self.preset) == "rate" else 0.0
        return self._request_s(self._streams) + backlog_s + DRAIN_SPARE_S

    @property
    def warm_up_s(self) -> float:
        return self._request_s(WARM_UP_REQUESTS)

    @property
    def longest_s(self) -> float:
        """All of it, the server's start aside."""
        return self.warm_up_s + len(self.loads) * (self.window_s + self.drain_s + OVERHEAD_S)

    @property
    def _streams(self) -> float:
        return max(self.loads) if kind_of(self.preset) == "concurrency" else 1

    def _request_s(self, streams: float) -> float:
        """With so many that compute their prompts at once."""
        values = PRESETS[self.preset].values
        tpot_s = PACES[self.model].tpot_s if self.model in PACES else TPOT_S
        prompts_s = streams * values["input"].high / PREFILL_TOKENS_PER_S
        return float(math.ceil(prompts_s + values["output"].high * tpot_s))


def kind_of(preset: str) -> str:
    """Of its loads."""
    return "rate" if "rate" in PRESETS[preset].values else "concurrency"


def loads_of(preset: str) -> tuple[float, ...]:
    return tuple(map(float, PRESETS[preset].values[kind_of(preset)]))


def preset_windows(preset: str, model: str, loads: Sequence[float] | None) -> PresetWindows:
    """`loads`: some of the preset's; None for all. Raises SystemExit for others."""
    known = loads_of(preset)
    if unknown := [load for load in loads or () if load not in known]:
        told = ", ".join(f"{load:g}" for load in known)
        raise SystemExit(f"{preset} has no load {unknown[0]:g}: its {kind_of(preset)} is one of {told}")
    return PresetWindows(preset, known if loads is None else tuple(loads), model)


def fitting(windows: PresetWindows, seconds: float) -> tuple[PresetWindows, tuple[float, ...]]:
    """The first of the loads that so many seconds are enough for, and which remain. Raises SystemExit where
    they are not enough for one.
    """
    for n in range(len(windows.loads), 0, -1):
        some = PresetWindows(windows.preset, windows.loads[:n], windows.model)
        if some.longest_s <= seconds:
            return some, windows.loads[n:]
    one = PresetWindows(windows.preset, windows.loads[:1], windows.model)
    raise SystemExit(
        f"{windows.preset} with {windows.model}: {seconds:.0f} s are too few for one window, which takes up "
        f"to {one.longest_s:.0f} s; peers.py has no such limit"
    )
