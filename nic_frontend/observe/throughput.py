"""The line that says what was served lately: of all frontends of a host together."""

from __future__ import annotations

from nic_frontend.observe.exposition import Seen
from nic_frontend.observe.metrics import Figures, added

LATENCIES = {"TTFT": "time_to_first_token_seconds", "ITL": "inter_token_latency_seconds"}


class Throughput:
    """Compares what is seen with what was seen before."""

    def __init__(self) -> None:
        self._before: dict[int, Figures] = {}
        self._when = 0.0
        self._was_busy = False

    def line(self, seen: Seen, now: float) -> tuple[str, dict[str, float]] | None:
        """What to say, and its numbers; None when nothing has happened since. `now` is in seconds."""
        before, seconds = self._before, now - self._when
        self._before, self._when = {**before, **seen.frontends}, now
        if not before:
            return None
        grown = [
            _grown(figures, before[lease]) if lease in before else figures
            for lease, figures in seen.frontends.items()
        ]
        numbers = _numbers(added(grown), seen, seconds)
        busy = any(
            numbers[name] for name in ("output_tokens_per_s", "prompt_tokens_per_s", "running", "waiting")
        )
        told = busy or self._was_busy
        self._was_busy = busy
        return (_words(numbers) if busy else "idle", numbers) if told else None


def _grown(figures: Figures, before: Figures) -> Figures:
    """What has come since. A frontend that was started again begins at 0, and nothing has shrunk."""
    return {
        name: _grown(value, before[name])
        if isinstance(value, dict)
        else [max(0, a - b) for a, b in zip(value, before[name], strict=True)]
        if isinstance(value, list)
        else max(0, value - before[name])
        for name, value in figures.items()
        if name in before
    }


def _numbers(grown: Figures, seen: Seen, seconds: float) -> dict[str, float]:
    stats, counters = seen.header["stats"], grown["counters"]
    total = int(seen.header["total_pages"])
    numbers: dict[str, float] = {
        "seconds": seconds,
        "output_tokens_per_s": counters["generation_tokens"] / seconds,
        "prompt_tokens_per_s": counters["prompt_tokens"] / seconds,
        "requests_per_s": (grown["finished"]["stop"] + grown["finished"]["length"]) / seconds,
        "running": int(stats["running"]),
        "waiting": int(stats["waiting"]),
        "kv_usage": (total - int(stats["free_pages"])) / total if total else 0.0,
    }
    if counters["prompt_tokens"]:
        numbers["cached_share"] = min(1.0, counters["prompt_tokens_cached"] / counters["prompt_tokens"])
    for name, histogram in LATENCIES.items():
        found = grown["histograms"][histogram]
        if n := sum(found["counts"]):
            numbers[f"{name.lower()}_ms"] = found["sum"] / n * 1e3
    return numbers


def _words(numbers: dict[str, float]) -> str:
    prompts = f"{numbers['prompt_tokens_per_s']:,.0f} prompt tokens/s"
    if "cached_share" in numbers:
        prompts += f" ({numbers['cached_share']:.0%} cached)"
    parts = [
        f"{numbers['output_tokens_per_s']:,.0f} output tokens/s",
        prompts,
        f"{numbers['requests_per_s']:.3g} requests/s",
        f"{numbers['running']:.0f} running, {numbers['waiting']:.0f} waiting",
        f"KV cache {numbers['kv_usage']:.0%}",
        *(
            f"{name} {numbers[f'{name.lower()}_ms']:.3g} ms"
            for name in LATENCIES
            if f"{name.lower()}_ms" in numbers
        ),
    ]
    return ", ".join(parts)
