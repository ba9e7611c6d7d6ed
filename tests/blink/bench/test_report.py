"""The tables that `blink bench serve` prints, and its warnings."""

from __future__ import annotations

from typing import Any

import pytest

from blink.bench import report

LATENCY = {"p50": 1234.5, "p99": 12345.6, "p99.9": 12345.6, "max": 98765.4, "mean": 1.0}


def point(**changes: Any) -> dict[str, Any]:
    return {
        "rate": None, "concurrency": 1024, "antagonists_per_core": 0, "requests_sent": 10000,
        "requests_failed": 0, "completed_per_s": 1234.56, "output_tokens_per_s": 123456.0,
        "output_tokens_per_s_of_rounds": 120000.0, "ttft_ms": LATENCY, "tpot_ms": LATENCY, "itl_ms": LATENCY,
        "ttft_of_all_ms": LATENCY, "tpot_of_all_ms": LATENCY,
        "e2e_ms": LATENCY, "tokens_counted_by": "usage", "tokens_per_chunk": 1.0, "failures": {},
        "tokens_missing": 0, "cpu": {"serve": {"seconds_per_thousand_tokens": 0.12}},
        "energy": {"joules_per_token": 0.05, "mean_watts": 650.0},
        "client": {"bottleneck": False, "loop_late_p99_ms": 0.1, "send_late_p99_ms": None,
                   "busiest_cpu_share": 0.2},
    } | changes  # fmt: skip


def printed(*points: dict[str, Any]) -> str:
    result = {"server": "http://127.0.0.1:8000", "model": "m", "began": "2026-11-25T12:00:00Z"}
    return report.table(result | {"points": list(points), "serviceable_rule": "", "serviceable_per_s": {}})


def test_a_run_with_everything_needs_no_wide_terminal() -> None:
    text = printed(point(), point(antagonists_per_core=4))
    tables = text.split("threads/core")[0]  # what follows compares, with a column a figure
    assert max(map(len, tables.splitlines())) <= 112
    assert max(map(len, printed(point()).splitlines())) <= 105


def test_what_every_column_means_is_said_and_none_needs_a_legend_elsewhere() -> None:
    text = printed(point())
    head = text.splitlines()[1].split("  ")
    assert "TTFT p50" in text
    assert "TPOT*" not in text
    assert "others" not in text
    assert "whole requests: from the end of each stream's first request" in text
    assert len([name for name in head if name.strip()]) == 11


@pytest.mark.parametrize(
    ("share", "message"),
    [
        (0.95, "the client was the bottleneck: "),
        (0.3, "this machine was busy, and the client waited for a core: "),
    ],
)
def test_a_warning_names_who_was_late(share: float, message: str) -> None:
    client = {
        "bottleneck": True,
        "loop_late_p99_ms": 12.0,
        "send_late_p99_ms": 20.0,
        "busiest_cpu_share": share,
    }
    text = printed(point(client=client))
    assert f"warning: c=1024: {message}" in text
    assert f"{share:.0%} of a core" in text
