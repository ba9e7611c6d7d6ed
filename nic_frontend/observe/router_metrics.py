"""What routers in front of several servers read, under the names that they know: vLLM's.

llm-d's endpoint picker and the Gateway API's read queue, batch and KV cache of a server, and the geometry of
the cache; vLLM's production-stack reads older names. deploy/llm-d maps blink's own names, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

CACHE_CONFIG = "cache_config_info"


def router_metrics(header: np.void, labels: dict[str, str]) -> Iterator[Metric]:
    """Of the ring's header (abi.Header)."""
    stats, total = header["stats"], int(header["total_pages"])
    used = (total - int(stats["free_pages"])) / total if total else 0.0
    gauges = {
        "num_requests_running": ("Rows in the batch", int(stats["running"])),
        "num_requests_waiting": ("Requests not admitted yet", int(stats["waiting"])),
        "kv_cache_usage_perc": ("Share of KV pages in use, 0 to 1", used),
        "gpu_cache_usage_perc": ("The same under its older name", used),
    }
    for name, (text, value) in gauges.items():
        yield _family(GaugeMetricFamily, f"vllm:{name}", text, labels, value)
    counters = {
        "gpu_prefix_cache_queries": ("Prompt tokens looked up in the prefix cache", stats["prefix_queries"]),
        "gpu_prefix_cache_hits": ("Prompt tokens found in the prefix cache", stats["prefix_hits"]),
    }
    for name, (text, count) in counters.items():
        yield _family(CounterMetricFamily, f"vllm:{name}", text, labels, int(count))
    geometry = {"block_size": str(int(header["page_size"])), "num_gpu_blocks": str(total)}
    for prefix in ("vllm", "blink"):
        yield _family(
            GaugeMetricFamily,
            f"{prefix}:{CACHE_CONFIG}",
            "Tokens of a KV page, and pages",
            labels | geometry,
            1,
        )


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily],
    name: str,
    text: str,
    labels: dict[str, str],
    value: float,
) -> Metric:
    family = kind(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family
