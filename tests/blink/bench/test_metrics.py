"""Figures against gaps that were worked out by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from blink.bench.metrics import Slo, failures, measure, serviceable, slo
from blink.bench.records import UNFINISHED, Outcome
from blink.bench.report import interference

MS = 1_000_000
SECOND = 1000 * MS


def outcome(
    sent_ms: float, *stamps_ms: float, tokens: int | None = None, error: str | None = None
) -> Outcome:
    stamps = np.array([int(stamp * MS) for stamp in stamps_ms], dtype=np.int64)
    n = len(stamps) if tokens is None else tokens
    return Outcome(0, None, int(sent_ms * MS), int(sent_ms * MS), max(4, n), stamps, n, True, error)


STEADY = (0, SECOND)


def test_latencies_of_one_request() -> None:
    point = measure([outcome(100, 150, 160, 190, 200)], STEADY, None)
    assert point["ttft_ms"]["p50"] == 50
    assert point["tpot_ms"]["p50"] == pytest.approx((200 - 150) / 3)
    assert point["tpot_with_first_ms"]["p50"] == pytest.approx((200 - 100) / 4)
    assert point["e2e_ms"]["max"] == 100
    gaps = point["itl_ms"]  # 10, 30, 10
    assert (gaps["p50"], gaps["max"]) == (10, 30)
    assert gaps["mean"] == pytest.approx(50 / 3)
    assert gaps["p95"] == pytest.approx(10 + 0.9 * 20)  # linear between the order statistics
    assert point["output_tokens_per_s"] == 4


def test_all_gaps_are_pooled_and_not_the_requests_means() -> None:
    long = outcome(0, *range(10, 1000, 10))
    point = measure([long, outcome(0, 10, 510)], STEADY, None)
    assert point["itl_ms"]["max"] == 500
    assert point["itl_ms"]["p95"] == 10
    assert point["tpot_ms"]["max"] == 500


def test_tokens_are_counted_by_usage_and_gaps_by_chunks() -> None:
    point = measure([outcome(0, 100, 200, tokens=9)], STEADY, None)
    assert point["tpot_ms"]["p50"] == pytest.approx(100 / 8)
    assert point["tpot_with_first_ms"]["p50"] == pytest.approx(200 / 9)
    assert point["itl_ms"]["p50"] == 100
    assert point["output_tokens_per_s"] == 9
    assert point["tokens_per_chunk"] == 4.5


def test_the_beginning_is_dropped_and_what_ends_late_is_not() -> None:
    early, late = outcome(0, 500, 1500), outcome(900, 950, 5000)
    point = measure([early, late], (int(0.5 * SECOND), SECOND), None)
    assert point["requests_sent"] == 1
    assert point["ttft_ms"]["max"] == 50  # of `late` alone
    assert point["offered_per_s"] == 2
    assert point["completed_per_s"] == 0
    assert point["output_tokens_per_s"] == 4  # early's first, late's first


def test_prompts_count_where_their_first_token_came() -> None:
    answers = [outcome(0, 900, 1100), outcome(0, 1010, 1100), outcome(0, 500, error="lost")]
    told = [dataclasses.replace(one, prompt_tokens=n) for one, n in zip(answers, (7, 100, 1000), strict=True)]
    assert measure(told, STEADY, None)["prompt_tokens_per_s"] == 7
    assert measure([outcome(0, 100)], STEADY, None)["prompt_tokens_per_s"] is None


def rounds(first_ms: float, streams: int = 3) -> list[Outcome]:
    """Of streams in step, from `first_ms` on: 300 ms of prompts, then 4 tokens in 100 ms."""
    starts = [first_ms + 400 * i for i in range(10)]
    return [
        dataclasses.replace(outcome(start, *(start + ms for ms in (325, 350, 375, 400))), stream=stream)
        for start in starts
        for stream in range(streams)
    ]


@pytest.mark.parametrize("first_ms", [-1000, -900, -750, -650])
def test_whole_rounds_have_a_rate_wherever_the_window_begins(first_ms: float) -> None:
    point = measure(rounds(first_ms), STEADY, None)
    assert point["output_tokens_per_s_of_rounds"] == pytest.approx(3 * 4 / 0.4)


def test_what_is_counted_depends_on_where_the_window_begins() -> None:
    counted = {measure(rounds(first), STEADY, None)["output_tokens_per_s"] for first in (-900, -650)}
    assert counted == {24, 36}  # of 30


def test_without_a_whole_round_of_every_stream_there_is_no_rate_of_rounds() -> None:
    late = dataclasses.replace(outcome(0, 500), stream=3)
    assert measure([*rounds(-1000), late], STEADY, None)["output_tokens_per_s_of_rounds"] is None
    assert "output_tokens_per_s_of_rounds" not in measure([outcome(0, 500)], STEADY, None)


def test_goodput_counts_requests_within_every_bound() -> None:
    outcomes = [outcome(0, 50, 60, 70), outcome(0, 150, 160, 170), outcome(0, 50, 60, 170), outcome(0, 50)]
    bounds = slo(["ttft:100", "itl:50"])
    assert measure(outcomes, STEADY, bounds)["goodput_per_s"] == 2
    assert measure(outcomes, STEADY, Slo(tpot=20))["goodput_per_s"] == 3
    assert "goodput_per_s" not in measure(outcomes, STEADY, None)


def test_failures_count_what_did_not_come_and_are_in_no_latency() -> None:
    bad = outcome(0, 900, error="stream ended without [DONE]")
    point = measure([outcome(0, 10, 20, 30, 40), bad], STEADY, None)
    assert point["requests_complete"] == 1
    assert point["ttft_ms"]["max"] == 10
    assert point["output_tokens_per_s"] == 4
    assert failures([bad, bad]) == {
        "requests_failed": 2,
        "failures": {"stream ended without [DONE]": 2},
        "failed_requests": [
            {"request": 0, "tokens": 1, "expected": 4, "error": "stream ended without [DONE]"}
        ]
        * 2,
        "tokens_missing": 6,
    }


def test_a_request_that_was_not_completed_is_longer_than_any() -> None:
    """Of 101 requests, the first token of the i-th comes after i ms and its second i ms later; those behind
    the 61 fastest never end.
    """
    good = [outcome(0, i, 2 * i) for i in range(1, 62)]
    lost = [outcome(0, i, error=UNFINISHED) for i in range(62, 102)]
    point = measure([*lost, *good], STEADY, None)
    assert point["ttft_ms"]["p50"] == 31  # of the 61
    unbounded = {"p95": None, "p99": None, "p99.9": None}
    for name, median in (("ttft", 51), ("tpot", 51), ("tpot_with_first", 51), ("e2e", 102)):
        assert point[f"{name}_of_all_ms"] == {"n": 101, "p50": median, **unbounded}
    assert "itl_of_all_ms" not in point


def test_a_percentile_between_the_last_complete_request_and_one_that_was_not_is_infinite() -> None:
    good = [outcome(0, i) for i in range(1, 100)]
    lost = outcome(0, error="HTTP 503: no")
    assert measure([*good, lost], STEADY, None)["ttft_of_all_ms"]["p99"] is None  # at 98.01 of 0 to 99
    assert measure([*good, outcome(0, 100), lost], STEADY, None)["ttft_of_all_ms"]["p99"] == 100  # at 99


def test_percentiles_of_all_are_those_of_complete_requests_where_all_are() -> None:
    point = measure([outcome(0, i * i, i * i + 7 * i) for i in range(1, 30)], STEADY, None)
    for name in ("ttft", "tpot", "tpot_with_first", "e2e"):
        of_all, complete = point[f"{name}_of_all_ms"], point[f"{name}_ms"]
        assert of_all == pytest.approx({key: complete[key] for key in of_all})


def test_requests_for_one_token_have_no_tpot_whether_they_end_or_not() -> None:
    several, one, lost = outcome(0, 10, 20), outcome(0, 10), outcome(0, error="lost")
    one, lost = (dataclasses.replace(each, expected_tokens=1) for each in (one, lost))
    point = measure([several, one, lost], STEADY, None)
    assert (point["tpot_of_all_ms"]["n"], point["ttft_of_all_ms"]["n"]) == (1, 3)
    assert measure([one], STEADY, None)["tpot_of_all_ms"] is None


def test_without_a_complete_request_there_are_no_latencies() -> None:
    point = measure([outcome(0, error="HTTP 503: no")], STEADY, Slo(ttft=1))
    assert point["ttft_ms"] is point["itl_ms"] is point["tokens_per_chunk"] is None
    assert point["ttft_of_all_ms"] == {"n": 1, **dict.fromkeys(("p50", "p95", "p99", "p99.9"))}
    assert measure([], STEADY, None)["ttft_of_all_ms"] is None
    assert point["goodput_per_s"] == 0


def test_serviceable_is_the_highest_rate_of_which_95_percent_came() -> None:
    def point(rate: float, share: float) -> dict[str, float]:
        return {"rate": rate, "offered_per_s": rate, "completed_per_s": rate * share}

    assert serviceable([point(1, 1.0), point(8, 0.96), point(16, 0.94)]) == 8
    assert serviceable([point(1, 0.5)]) is None


def test_a_request_that_was_sent_late_counts_when_it_was_due() -> None:
    late = dataclasses.replace(outcome(1100, 1200, 1300, 1400, 1500), due_ns=900 * MS)
    point = measure([late], STEADY, None)
    assert point["requests_sent"] == 1
    assert point["ttft_ms"]["p50"] == 100  # of the server: the client's lateness is reported apart


def test_the_interference_table_has_ratios_to_the_quiet_run() -> None:
    def point(level: int, value: float, rate: float) -> dict[str, object]:
        figures = {"p99": value, "p99.9": value, "max": value}
        return {
            "antagonists_per_core": level,
            "completed_per_s": rate,
            "ttft_of_all_ms": figures,
            "tpot_of_all_ms": figures,
            "itl_ms": figures,
        }

    quiet = [point(0, 1.0, 1.0), point(0, 4.0, 10.0)]  # a geometric mean of 2
    loud = [point(8, 9.0, 1.0), point(8, 4.0, 5.0)]  # of 6
    rows = [line.split("  ") for line in interference([*quiet, *loud]).splitlines()]
    cells = [cell.strip() for cell in rows[2] if cell.strip()]
    assert cells == ["8", "6 [3.00]", "6 [3.00]", "5 [0.50]", "6 [3.00]", "6 [3.00]", "9 [2.25]"]


def test_what_antagonists_keep_from_ending_is_no_gain() -> None:
    quiet = measure([outcome(0, 30 + i, 80 + i) for i in range(20)], STEADY, None)
    loud = measure([outcome(0, 10, 60), *[outcome(0, 10, error=UNFINISHED)] * 19], STEADY, None)
    points = [quiet | {"antagonists_per_core": 0}, loud | {"antagonists_per_core": 8}]
    rows = [
        [cell.strip() for cell in line.split("  ") if cell.strip()]
        for line in interference(points).splitlines()
    ]
    assert rows[1][:3] == ["0", "48.81 [1.00]", "50 [1.00]"]
    assert rows[2][:5] == ["8", "unbounded", "unbounded", "1 [0.05]", "50 [1.00]"]
    turned = [loud | {"antagonists_per_core": 0}, quiet | {"antagonists_per_core": 8}]
    assert interference(turned).splitlines()[2].split()[1:3] == ["48.81", "50"]  # no ratio to an infinite one
