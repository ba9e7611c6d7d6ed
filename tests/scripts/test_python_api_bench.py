"""scripts/bench/python_api.py: the rate without the ends of a call, and what is compared with what."""

from __future__ import annotations

import pytest
from bench.python_api import PYTHON, Progress, report, steady


def test_the_ends_of_a_call_do_not_count() -> None:
    """Of 20 prompts, two have begun after 2 s, and the last one does after 6 s."""
    begun = [0, 1, 2, 8, 14, 19, 20, 20, 20]
    tokens = [0, 5, 20, 120, 220, 320, 420, 450, 460]
    before = 7  # of another call
    seen = [
        Progress(float(at), 1_000 + so_far, before + n)
        for at, (so_far, n) in enumerate(zip(tokens, begun, strict=True))
    ]
    assert steady(seen, 20) == pytest.approx(100.0)


def test_a_call_whose_prompts_begin_at_once_has_no_steady_rate() -> None:
    seen = [Progress(at, int(100 * at), n) for at, n in ((0.0, 0), (0.1, 5), (0.11, 20), (3.0, 20))]
    assert steady(seen, 20) is None


def test_both_rates_are_compared_with_the_fastest_loop(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        "HTTP, 8 open": [10.0, 30.0, 20.0],
        "HTTP, 16 open": [100.0, 300.0, 200.0],
        PYTHON: [190.0, 150.0, 194.0],
        f"{PYTHON}, without its ends": [196.0, 198.0, 199.0],
    }
    report(found)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "HTTP, 8 open: 20 output tokens/s (median of 10, 30, 20)",
        "HTTP, 16 open: 200 output tokens/s (median of 100, 300, 200)",
        "LLM.generate: 190 output tokens/s (median of 190, 150, 194)",
        "LLM.generate, without its ends: 198 output tokens/s (median of 196, 198, 199)",
        "LLM.generate: 95.0% of the fastest closed loop",
        "LLM.generate, without its ends: 99.0% of the fastest closed loop",
    ]
