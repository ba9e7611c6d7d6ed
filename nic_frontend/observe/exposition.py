"""What /metrics shows: the counts and times of this host's frontends, and the scheduler's own counters from
the ring's header. prometheus_client renders them when a scrape comes.

Names are vLLM's with the prefix `blink:`, and each frontend's have its lease as a label. With vLLM's names
the prefix is `vllm:`, the frontends are added up, and what its boards ask for has further names of vLLM's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain
from operator import getitem
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from nic_frontend.observe.metrics import COUNTERS, HISTOGRAMS, READER, Figures, added
from nic_frontend.observe.router_metrics import router_metrics

NAMES = ("blink", "vllm")
SCHEDULER_GAUGES = {
    "free_pages": "KV pages that no row has, those of the prefix cache included",
    "cached_pages": "KV pages that no row has and the prefix cache keeps",
    "longest_turn_ns": "Nanoseconds that the longest turn of the scheduler's loop has taken",
}
SCHEDULER_COUNTERS = {  # blink_stats of statistics.h, but for what has a name of vLLM's
    "steps": "Steps completed",
    "decode_steps": "Steps with sequences that decode",
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
    "zombie_rows": "Batch slots of sequences that had ended before their step did",
    "torn_payloads": "Requests read again because their checksum did not match",
    "leases_reclaimed": "Leases taken back because nobody refreshed them",
    "prefix_lookups": "Look-ups in the prefix cache",
    "prefix_lookup_ns": "Nanoseconds that look-ups took",
    "prefix_insertions": "KV pages that entered the prefix cache",
    "prefix_insertion_ns": "Nanoseconds that insertions took",
    "prefix_evictions": "KV pages that left the prefix cache to make room",
    "prefix_eviction_ns": "Nanoseconds that evictions took",
}
DRAFT_COUNTERS = {  # blink_stats of statistics.h, with vLLM's names
    "drafts": "Times that drafts of a request's next tokens were checked",
    "draft_tokens": "Tokens of these drafts",
    "accepted_tokens": "Tokens of these drafts that were what the model says",
}
VLLM_ALSO = {  # names of vLLM's for figures that have another one here
    "time_per_output_token_seconds": "inter_token_latency_seconds",
    "request_max_num_generation_tokens": "request_generation_tokens",
}
SINGLE: tuple[tuple[Any, str, str, tuple[str, ...]], ...] = (  # with where the figures have them
    (GaugeMetricFamily, "num_requests_open", "Requests of a frontend that hold a slot", ("open",)),
    *((CounterMetricFamily, name, text, ("counters", name)) for name, text in COUNTERS.items()),
    *((CounterMetricFamily, f"reader_{name}", text, ("reader", name)) for name, text in READER.items()),
    (GaugeMetricFamily, "scheduler_heartbeat_age_seconds", "Since the last heartbeat that a frontend saw",
     ("heartbeat_age_s",)),
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """What there is to show: figures by lease, and the ring's header."""

    frontends: dict[int, Figures]
    header: np.void


class Exposition:
    """Renders the metrics in Prometheus' text format. `seen` is called when a scrape comes."""

    def __init__(self, model: str, seen: Callable[[], Seen], names: str) -> None:
        self._seen = seen
        self._prefix = names
        self._labels = {"model_name": model}
        if self._is_vllm:
            self._labels["engine"] = "0"
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    @property
    def _is_vllm(self) -> bool:
        return self._prefix == "vllm"

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        seen = self._seen()
        figures: dict[tuple[str, ...], Figures] = {
            (str(lease),): found for lease, found in sorted(seen.frontends.items())
        }
        if self._is_vllm:
            figures = {(): added(list(figures.values()))}
        told: set[str] = set()
        for family in chain(self._frontends(figures), self._scheduler(seen.header)):
            told.add(family.name)
            yield family
        for family in router_metrics(seen.header, self._labels):
            if family.name not in told:
                yield family

    def _family(self, kind: Any, name: str, text: str, *labels: str) -> Any:
        """Of metrics with the labels that all have, a lease, and these."""
        of_frontend = () if self._is_vllm else ("lease",)
        return kind(f"{self._prefix}:{name}", text, labels=[*self._labels, *of_frontend, *labels])

    def _frontends(self, figures: dict[tuple[str, ...], Figures]) -> Iterator[Metric]:
        own = list(self._labels.values())
        for kind, name, text, path in SINGLE:
            family = self._family(kind, name, text)
            for labels, found in figures.items():
                family.add_metric([*own, *labels], reduce(getitem, path, found))
            yield family
        for name, text, label, key in (
            ("request_success", "Requests by how they ended", "finished_reason", "finished"),
            ("http_responses", "Responses by status", "status", "responses"),
        ):
            family = self._family(CounterMetricFamily, name, text, label)
            for labels, found in figures.items():
                for value, count in found[key].items():
                    family.add_metric([*own, *labels, value], count)
            yield family
        for name, (text, _) in HISTOGRAMS.items():
            yield self._histogram(name, text, name, figures)
        if self._is_vllm:
            yield from self._more_of_vllm(figures)

    def _histogram(
        self, name: str, text: str, of: str, figures: dict[tuple[str, ...], Figures]
    ) -> HistogramMetricFamily:
        bounds = [*(str(bound) for bound in HISTOGRAMS[of][1]), "+Inf"]
        family: HistogramMetricFamily = self._family(HistogramMetricFamily, name, text)
        for labels, found in figures.items():
            counts = accumulate(found["histograms"][of]["counts"])
            buckets = list(zip(bounds, map(float, counts), strict=True))
            sum_of_all = found["histograms"][of]["sum"]
            family.add_metric([*self._labels.values(), *labels], buckets, sum_of_all)
        return family

    def _more_of_vllm(self, figures: dict[tuple[str, ...], Figures]) -> Iterator[Metric]:
        for name, of in VLLM_ALSO.items():
            yield self._histogram(name, HISTOGRAMS[of][0], of, figures)

    def _scheduler(self, header: np.void) -> Iterator[Metric]:
        stats = header["stats"]
        total, free = int(header["total_pages"]), int(stats["free_pages"])
        used = (total - free) / total if total else 0.0
        counter, gauge = CounterMetricFamily, GaugeMetricFamily
        found: list[tuple[Any, str, str, float]] = [
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
        found += [
            (counter, f"spec_decode_num_{name}", text, int(stats[name]))
            for name, text in DRAFT_COUNTERS.items()
        ]
        for of_kind, texts in ((gauge, SCHEDULER_GAUGES), (counter, SCHEDULER_COUNTERS)):
            found += [(of_kind, f"scheduler_{name}", text, int(stats[name])) for name, text in texts.items()]
        for kind, name, text, value in found:
            family: Any = kind(f"{self._prefix}:{name}", text, labels=list(self._labels))
            family.add_metric(list(self._labels.values()), value)
            yield family
