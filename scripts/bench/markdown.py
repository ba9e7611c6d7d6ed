"""Tables in Markdown, and how figures look in them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOT_RUN = "not run"
NONE = "-"  # measured, and without such a figure


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None) -> str:
    """With three digits that count, or all before the point."""
    if value is None:
        return NONE
    if math.isinf(value):
        return "unbounded"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:#.3g}".removesuffix(".")


def exact(value: float) -> str:
    """As the paper prints it."""
    return f"{value:,g}"


def with_ratio(value: str, ratio: float) -> str:
    return f"{value} [{ratio:.2f}]"
