"""Ways to speculate that a measurement compares, and the change from one to another on one loaded engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from gpu_backend.backend import Backend
from gpu_backend.schedulers.base import SchedulerKind
from gpu_backend.speculation import Speculation, parse_acceptance, parse_share, parse_speculation

NONE = Speculation()
LOOK_UPS = Speculation(5, 4, 2)  # of answers that are made to repeat their prompts
EDITS = "edits="
FORMS = "none, P1,P2,... (drafts accepted by chance), edits=SHARE (answers repeat prompts), or a JSON object"
Way = tuple[str, Speculation]


def parse_way(text: str) -> Way:
    """Of one of FORMS. A JSON object is one of --speculative-config. Raises ValueError."""
    if text == "none":
        return text, NONE
    if text.startswith("{"):
        return text, parse_speculation(text)
    if text.startswith(EDITS):
        return text, replace(LOOK_UPS, copied_share=parse_share(text.removeprefix(EDITS)))
    chances = parse_acceptance(text)
    return text, Speculation(len(chances), acceptance=chances)


def config_for(ways: Sequence[Speculation]) -> Speculation | None:
    """What a backend is to be started with so that it can be changed to any of these ways."""
    widest = max(ways, key=lambda way: way.max_drafts)
    return replace(widest, acceptance=(), copied_share=0.0) if widest.max_drafts else None


def speculate(backend: Backend, way: Speculation) -> None:
    """Starts the scheduler anew with this way. Its ring is a new one, so clients attach after this."""
    chosen = {field.name: getattr(way, field.name) for field in fields(way)}
    backend.limits = replace(backend.limits, **chosen)
    backend.change_scheduler(SchedulerKind.GPU)
