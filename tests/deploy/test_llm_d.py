"""Routers find the metrics that they read: by the mapping of deploy/llm-d, and under vLLM's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import yaml
from prometheus_client.parser import text_string_to_metric_families

from nic_frontend.abi import Health
from nic_frontend.observe.exposition import Exposition, Seen
from nic_frontend.observe.metrics import Metrics
from ringbuffer import abi

ROOT = Path(__file__).resolve().parents[2]
SPECS = ("queuedRequestsSpec", "runningRequestsSpec", "kvUsageSpec", "cacheInfoSpec")


def scraped() -> dict[str, Any]:
    """Samples by name, as a router parses them."""
    header = np.zeros(1, abi.Header)
    header["total_pages"], header["page_size"] = 100, 16
    stats = header["stats"][0]
    stats["running"], stats["waiting"], stats["free_pages"] = 3, 2, 75
    stats["prefix_queries"], stats["prefix_hits"] = 40, 30
    figures = Metrics().figures(0, Health())
    exposition = Exposition("demo", lambda: Seen({0: figures}, header[0]), "blink")
    text = exposition.render().decode()
    return {
        sample.name: sample for family in text_string_to_metric_families(text) for sample in family.samples
    }


def mapping() -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "deploy/llm-d/endpoint-picker.yaml").read_text())
    plugins = {plugin["type"]: plugin.get("parameters", {}) for plugin in config["plugins"]}
    (engine,) = plugins["core-metrics-extractor"]["engineConfigs"]
    assert engine["name"] == "blink"
    return dict(engine)


def test_the_endpoint_picker_finds_what_its_mapping_names() -> None:
    samples, engine = scraped(), mapping()
    assert [samples[engine[spec]].value for spec in SPECS] == [2, 3, 0.25, 1]
    info = samples[engine["cacheInfoSpec"]].labels
    assert (info[engine["cacheBlockSizeLabelName"]], info[engine["cacheNumBlocksLabelName"]]) == ("16", "100")


def test_an_endpoint_picker_without_the_mapping_finds_vllms_names() -> None:
    samples = scraped()
    for spec in SPECS:
        ours = samples[mapping()[spec]]
        theirs = samples[mapping()[spec].replace("blink:", "vllm:")]
        assert (ours.value, ours.labels) == (theirs.value, theirs.labels)


def test_the_production_stacks_router_finds_what_it_reads() -> None:
    samples = scraped()
    assert samples["vllm:num_requests_running"].value == 3
    assert samples["vllm:num_requests_waiting"].value == 2
    assert samples["vllm:gpu_cache_usage_perc"].value == 0.25
    assert samples["vllm:gpu_prefix_cache_hits_total"].value == 30
    assert samples["vllm:gpu_prefix_cache_queries_total"].value == 40


def test_every_plugin_that_is_used_is_declared() -> None:
    config = yaml.safe_load((ROOT / "deploy/llm-d/endpoint-picker.yaml").read_text())
    declared = {plugin["type"] for plugin in config["plugins"]}
    used = {plugin["pluginRef"] for profile in config["schedulingProfiles"] for plugin in profile["plugins"]}
    for source in config["dataLayer"]["sources"]:
        used |= {source["pluginRef"], *(extractor["pluginRef"] for extractor in source["extractors"])}
    assert used <= declared
