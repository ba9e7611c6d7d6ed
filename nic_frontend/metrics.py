"""What /metrics shows: this frontend's counts and times, and the scheduler's own counters from the ring's
header.

Names follow vLLM's with the prefix `blink:`, so that dashboards need one substitution. The token path adds to
plain integers; prometheus_client only renders them when a scrape comes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from nic_frontend.abi import Health
from nic_frontend.request import Request
from nic_frontend.router_metrics import router_metrics

TIME_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
TOKEN_BUCKETS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
SCHEDULER_GAUGES = {
    "free_pages": "KV pages that no row has, those of the prefix cache included",
    "cached_pages": "KV pages that no row has and the prefix cache keeps",
}
SCHEDULER_COUNTERS = {  # blink_stats of ring.h, but for what has a name of vLLM's
    "steps": "Steps completed",
    "decode_steps": "Steps with rows that decode",
    "prefill_steps": "Steps with prompts; a step may have both",
    "launches": "Graphs launched from the GPU",
    "refused_launches": "Launches that the runtime refused, and that were tried again",
    "relaunches": "Times that the scheduler launched itself anew",
    "idle_polls": "Scans of the ring with no step running",
    "tokens": "Output tokens published",
    "prompt_tokens": "Prompt tokens prefilled, those of paused requests again",
    "admitted": "Requests that got a row and pages",
    "completed": "Requests that ended by themselves",
    "cancelled": "Requests that were cancelled",
    "failed": "Requests that failed",
    "zombie_rows": "Rows that rode one step past their end",
    "torn_payloads": "Requests read again because their checksum did not match",
    "leases_reclaimed": "Leases taken back because nobody refreshed them",
    "prefix_lookups": "Look-ups in the prefix cache",
    "prefix_lookup_ns": "Nanoseconds that look-ups took",
    "prefix_insertions": "KV pages that entered the prefix cache",
    "prefix_insertion_ns": "Nanoseconds that insertions took",
    "prefix_evictions": "KV pages that left the prefix cache to make room",
    "prefix_eviction_ns": "Nanoseconds that evictions took",
}


class Histogram:
    """Counts per bucket, for one thread."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        bounds = [*(str(bound) for bound in self.bounds), "+Inf"]
        return list(zip(bounds, np.cumsum(self.counts).tolist(), strict=True))


class Metrics:
    """One per frontend process.

    `snapshot` gives the ring's header and the reader's health when a scrape comes.
    """

    def __init__(self, model: str, lease: int) -> None:
        self.model = {"model_name": model}  # the labels of what all frontends of a ring see alike
        self.labels = {**self.model, "lease": str(lease)}
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.slow_clients = 0
        self.disconnects = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.responses: dict[int, int] = {}
        self.ttft = Histogram(TIME_BUCKETS)
        self.itl = Histogram(TIME_BUCKETS)
        self.e2e = Histogram(TIME_BUCKETS)
        self.tpot = Histogram(TIME_BUCKETS)
        self.request_prompt_tokens = Histogram(TOKEN_BUCKETS)
        self.request_computed_tokens = Histogram(TOKEN_BUCKETS)
        self.request_generation_tokens = Histogram(TOKEN_BUCKETS)

    def on_tokens(self, request: Request, n: int, now: float) -> None:
        self.generation_tokens += n
        if request.n_tokens:
            self.itl.observe((now - request.last_token) / n, n)
        else:
            self.prompt_tokens_cached += request.cached_tokens
            request.first_token = now
            self.ttft.observe(now - request.arrived)
        request.n_tokens += n
        request.last_token = now

    def on_finished(self, request: Request, reason: str, now: float) -> None:
        """`reason` is the API's finish_reason, or "abort" when the client left, or "error"."""
        self.finished[reason] += 1
        if reason not in ("stop", "length"):
            return
        self.e2e.observe(now - request.arrived)
        self.request_prompt_tokens.observe(len(request.prompt))
        self.request_computed_tokens.observe(len(request.prompt) - request.cached_tokens)
        self.request_generation_tokens.observe(request.n_tokens)
        if request.n_tokens > 1:
            self.tpot.observe((request.last_token - request.first_token) / (request.n_tokens - 1))

    def on_response(self, status: int) -> None:
        self.responses[status] = self.responses.get(status, 0) + 1


def family_of_one(kind: type[Metric], name: str, text: str, labels: dict[str, str], value: float) -> Metric:
    family = kind(f"blink:{name}", text, labels=list(labels))  # type: ignore[call-arg]
    family.add_metric(list(labels.values()), value)  # type: ignore[attr-defined]
    return family


class Exposition:
    """Renders the metrics in Prometheus' text format."""

    def __init__(self, metrics: Metrics, snapshot: Callable[[], tuple[np.void, Health, int]]) -> None:
        self._metrics = metrics
        self._snapshot = snapshot  # the ring's header, the reader's health, this frontend's open requests
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        header, health, n_open = self._snapshot()
        yield from self._frontend(n_open)
        yield from self._reader(health)
        yield from self._scheduler(header)
        yield from router_metrics(header, self._metrics.model)

    def _one(self, kind: type[Metric], name: str, text: str, value: float) -> Metric:
        return family_of_one(kind, name, text, self._metrics.labels, value)

    def _histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        family = HistogramMetricFamily(f"blink:{name}", text, labels=list(self._metrics.labels))
        family.add_metric(list(self._metrics.labels.values()), histogram.cumulative(), histogram.sum)
        return family

    def _labelled(self, name: str, text: str, label: str, values: dict[str, int]) -> Metric:
        family = CounterMetricFamily(f"blink:{name}", text, labels=[*self._metrics.labels, label])
        for value, count in values.items():
            family.add_metric([*self._metrics.labels.values(), value], count)
        return family

    def _frontend(self, n_open: int) -> Iterator[Metric]:
        m = self._metrics
        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        yield self._one(gauge, "num_requests_open", "Requests of this frontend that hold a slot", n_open)
        yield self._one(counter, "prompt_tokens", "Prompt tokens submitted", m.prompt_tokens)
        yield self._one(
            counter, "prompt_tokens_cached", "Prompt tokens that were cached", m.prompt_tokens_cached
        )
        yield self._one(counter, "generation_tokens", "Output tokens received", m.generation_tokens)
        yield self._one(
            counter, "slow_clients", "Requests cancelled because the client did not read", m.slow_clients
        )
        yield self._one(
            counter, "client_disconnects", "Requests cancelled because the client left", m.disconnects
        )
        yield self._labelled("request_success", "Requests by how they ended", "finished_reason", m.finished)
        statuses = {str(status): count for status, count in m.responses.items()}
        yield self._labelled("http_responses", "Responses by status", "status", statuses)
        yield self._histogram("time_to_first_token_seconds", "Arrival to first token", m.ttft)
        yield self._histogram("inter_token_latency_seconds", "Between two tokens of a request", m.itl)
        yield self._histogram("e2e_request_latency_seconds", "Arrival to last token", m.e2e)
        yield self._histogram(
            "request_time_per_output_token_seconds", "Mean time per token after the first", m.tpot
        )
        yield self._histogram("request_prompt_tokens", "Prompt tokens per request", m.request_prompt_tokens)
        yield self._histogram(
            "request_prefill_kv_computed_tokens",
            "Prompt tokens per request that were not cached",
            m.request_computed_tokens,
        )
        yield self._histogram(
            "request_generation_tokens", "Output tokens per request", m.request_generation_tokens
        )

    def _reader(self, health: Health) -> Iterator[Metric]:
        texts = {
            "cycles": "Cycles of the token reader that visited a slot",
            "wakes": "Times the token reader woke the event loop",
            "records": "Output records accepted",
            "bad_records": "Output records found stale or torn, and read again",
            "arena_reads": "Reads of the output arena, where the inline records did not suffice",
        }
        for name, text in texts.items():
            yield self._one(CounterMetricFamily, f"reader_{name}", text, getattr(health, name))
        age = health.heartbeat_age_ns / 1e9
        yield self._one(GaugeMetricFamily, "scheduler_heartbeat_age_seconds", "Since the last heartbeat", age)

    def _scheduler(self, header: np.void) -> Iterator[Metric]:
        stats = header["stats"]
        total, free = int(header["total_pages"]), int(stats["free_pages"])
        used = (total - free) / total if total else 0.0
        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        found: list[tuple[type[Metric], str, str, float]] = [
            (gauge, "num_requests_running", "Rows in the batch", int(stats["running"])),
            (gauge, "num_requests_waiting", "Requests not admitted yet", int(stats["waiting"])),
            (gauge, "kv_cache_usage_perc", "Share of KV pages in use, 0 to 1", used),
            (counter, "num_preemptions", "Requests paused for pages", int(stats["preempted"])),
            (
                counter,
                "prefix_cache_queries",
                "Prompt tokens looked up in the prefix cache",
                int(stats["prefix_queries"]),
            ),
            (
                counter,
                "prefix_cache_hits",
                "Prompt tokens found in the prefix cache",
                int(stats["prefix_hits"]),
            ),
        ]
        for of_kind, texts in ((gauge, SCHEDULER_GAUGES), (counter, SCHEDULER_COUNTERS)):
            found += [(of_kind, f"scheduler_{name}", text, int(stats[name])) for name, text in texts.items()]
        for kind, name, text, value in found:
            yield family_of_one(kind, name, text, self._metrics.model, value)
