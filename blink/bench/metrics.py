"""From outcomes to figures. Definitions are in README.md (B4, B6 to B9), cited here by number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blink.bench.records import Outcome

Ms = NDArray[np.float64]
PERCENTILES = {"p50": 50.0, "p95": 95.0, "p99": 99.0, "p99.9": 99.9}
SERVICEABLE_SHARE = 0.95  # Blink paper, appendix, figure C.1
SERVICEABLE_RULE = (
    "serviceable load: the highest offered rate of which at least 95 % was completed, both counted over the "
    "steady part of the window"
)
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Slo:
    """Bounds in milliseconds that a request must keep; None is no bound."""

    ttft: float | None = None
    tpot: float | None = None  # first token excluded
    itl: float | None = None  # the request's longest gap

    def kept(self, outcome: Outcome) -> bool:
        pairs = ((self.ttft, ttft_ms), (self.tpot, tpot_ms), (self.itl, longest_gap_ms))
        return all(bound is None or measure(outcome) <= bound for bound, measure in pairs)


def slo(texts: Iterable[str]) -> Slo:
    """Of "ttft:MS", "tpot:MS" and "itl:MS". Raises ValueError."""
    bounds: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition(":")
        if name not in ("ttft", "tpot", "itl"):
            raise ValueError(f"'{text}' is no bound; write ttft:MS, tpot:MS or itl:MS")
        try:
            bounds[name] = float(value)
        except ValueError:
            raise ValueError(f"'{text}': '{value}' is not a time in milliseconds") from None
    return Slo(**bounds)


def ttft_ms(outcome: Outcome) -> float:
    return float(outcome.stamps[0] - outcome.sent_ns) / NS_PER_MS


def e2e_ms(outcome: Outcome) -> float:
    return float(outcome.stamps[-1] - outcome.sent_ns) / NS_PER_MS


def gaps_ms(outcome: Outcome) -> Ms:
    """(chunks - 1,): between chunks, whatever number of tokens they hold (B4)."""
    return np.diff(outcome.stamps) / NS_PER_MS


def longest_gap_ms(outcome: Outcome) -> float:
    gaps = gaps_ms(outcome)
    return float(gaps.max()) if len(gaps) else 0.0


def tpot_ms(outcome: Outcome) -> float:
    """First token excluded: (last - first) / (tokens - 1), as in vLLM's `bench serve`. 0 for one token."""
    return (e2e_ms(outcome) - ttft_ms(outcome)) / max(1, outcome.tokens - 1)


def tpot_with_first_ms(outcome: Outcome) -> float:
    """First token included: (last - sent) / tokens, as guidellm's time_per_output_token."""
    return e2e_ms(outcome) / outcome.tokens


def summary(values: Ms) -> dict[str, float] | None:
    """How many there are (n), and their mean, percentiles and max, in their unit; None without values."""
    if len(values) == 0:
        return None
    result = {"n": len(values), "mean": float(values.mean())}
    result |= {
        name: float(value)
        for name, value in zip(PERCENTILES, np.percentile(values, list(PERCENTILES.values())), strict=True)
    }
    return result | {"max": float(values.max())}


def percentiles_of_all(values: Ms, never: int) -> dict[str, float | None] | None:
    """Of `values` and as many infinite ones as `never` says: how many there are together (n), and their
    percentiles, of which None is an infinite one; None where there are none of either.
    """
    n = len(values) + never
    if n == 0:
        return None
    found: dict[str, float | None] = {"n": n}
    ordered, last = np.sort(values), len(values) - 1
    for name, percent in PERCENTILES.items():
        place = percent * (n - 1) / 100
        # numpy's own percentile is nan beside an infinite value, also where that has no weight.
        found[name] = float(np.interp(place, np.arange(last + 1), ordered)) if place <= last else None
    return found


def measure(outcomes: list[Outcome], steady_ns: tuple[int, int], bounds: Slo | None) -> dict[str, Any]:
    """The figures of one window. Latencies are of requests sent in its steady part (B6), rates of what
    arrived in it (B7).
    """
    begin, end = steady_ns
    seconds = (end - begin) / 1e9
    sent = [o for o in outcomes if begin <= o.due_ns < end]
    good = [o for o in sent if o.ok]
    finished = [o for o in outcomes if o.ok and begin <= o.stamps[-1] < end]
    result: dict[str, Any] = {
        "steady_s": seconds,
        "requests_sent": len(sent),
        "requests_complete": len(good),
        "offered_per_s": len(sent) / seconds,
        "completed_per_s": len(finished) / seconds,
        "output_tokens_per_s": tokens_between(outcomes, begin, end) / seconds,
        "prompt_tokens_per_s": prompt_tokens_per_s(outcomes, begin, end),
        **latencies(sent),
        "tokens_per_chunk": _ratio(sum(o.tokens for o in good), sum(len(o.stamps) for o in good)),
        "tokens_counted_by": "usage" if all(o.has_usage for o in good) else "chunks",
    }
    if any(o.stream is not None for o in outcomes):
        result["output_tokens_per_s_of_rounds"] = tokens_per_s_of_rounds(outcomes, begin, end)
    if bounds is not None:
        result["goodput_per_s"] = sum(bounds.kept(o) for o in good) / seconds
    return result | failures(outcomes)


def latencies(sent: list[Outcome]) -> dict[str, Any]:
    """Of complete requests; and percentiles of all, with an infinite one for each that was not completed
    (B6).
    """
    good, failed = [o for o in sent if o.ok], [o for o in sent if not o.ok]
    of_requests = {
        "ttft": ([ttft_ms(o) for o in good], len(failed)),
        "tpot": ([tpot_ms(o) for o in good if o.tokens > 1], sum(o.expected_tokens > 1 for o in failed)),
        "tpot_with_first": ([tpot_with_first_ms(o) for o in good], len(failed)),
        "e2e": ([e2e_ms(o) for o in good], len(failed)),
    }
    found: dict[str, Any] = {"itl_ms": summary(np.concatenate([np.empty(0), *(gaps_ms(o) for o in good)]))}
    for name, (values, never) in of_requests.items():
        found[f"{name}_ms"] = summary(np.array(values))
        found[f"{name}_of_all_ms"] = percentiles_of_all(np.array(values), never)
    return found


def failures(outcomes: list[Outcome]) -> dict[str, Any]:
    """Of the whole window, its unsteady part too: each cause, and the tokens that never came (B8)."""
    failed = [o for o in outcomes if not o.ok]
    return {
        "requests_failed": len(failed),
        "failures": dict(Counter(str(o.error) for o in failed).most_common()),
        "failed_requests": [
            {"request": o.index, "tokens": o.tokens, "expected": o.expected_tokens, "error": o.error}
            for o in failed[:100]
        ],
        "tokens_missing": sum(max(0, o.expected_tokens - o.tokens) for o in failed),
    }


def tokens_between(outcomes: list[Outcome], begin: int, end: int) -> float:
    """Tokens of complete requests that arrived in [begin, end); a request's chunks count alike (B4)."""
    return float(
        sum(
            np.count_nonzero((o.stamps >= begin) & (o.stamps < end)) * o.tokens / len(o.stamps)
            for o in outcomes
            if o.ok
        )
    )


def prompt_tokens_per_s(outcomes: list[Outcome], begin: int, end: int) -> float | None:
    """Of the prompts of complete requests whose first token arrived in [begin, end), by the server's usage;
    None where one has none (B7).
    """
    lengths = [o.prompt_tokens for o in outcomes if o.ok and begin <= o.stamps[0] < end]
    if any(n is None for n in lengths):
        return None
    return sum(n for n in lengths if n is not None) / ((end - begin) / 1e9)


def tokens_per_s_of_rounds(outcomes: list[Outcome], begin: int, end: int) -> float | None:
    """Of a closed loop over whole rounds in [begin, end): for each stream, the tokens behind its first
    completion up to its last, by the time between (B7). None where a stream completes fewer than two.
    """
    ended: dict[int | None, list[Outcome]] = {o.stream: [] for o in outcomes}
    for o in outcomes:
        if o.ok and begin <= o.stamps[-1] < end:
            ended[o.stream].append(o)
    if any(len(of_stream) < 2 for of_stream in ended.values()):
        return None
    rate = 0.0
    for of_stream in ended.values():
        first, *others = sorted(of_stream, key=lambda o: int(o.stamps[-1]))
        seconds = float(others[-1].stamps[-1] - first.stamps[-1]) / 1e9
        rate += sum(o.tokens for o in others) / seconds
    return rate


def send_late_p99_ms(outcomes: list[Outcome]) -> float:
    """How late requests of an open loop were written."""
    late = [(o.sent_ns - o.due_ns) / NS_PER_MS for o in outcomes]
    return float(np.percentile(late, 99)) if late else 0.0


def serviceable(points: list[dict[str, Any]]) -> float | None:
    """The nominal rate in requests/s; None when no rate was served (SERVICEABLE_RULE)."""
    rates = [
        float(point["rate"])
        for point in points
        if point["rate"] is not None
        and point["completed_per_s"] >= SERVICEABLE_SHARE * point["offered_per_s"] > 0
    ]
    return max(rates, default=None)


def geometric_mean(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values))))


def _ratio(a: float, b: float) -> float | None:
    return a / b if b else None
