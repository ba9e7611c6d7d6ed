"""What /metrics shows of a frontend and of the scheduler."""

from __future__ import annotations

from typing import Any

from harness import Frontend, StartBackend, StartFrontend, wait_until
from mock_backend import MockBackend
from prometheus_client.parser import text_string_to_metric_families

from nic_frontend import metrics
from ringbuffer import abi


def scrape(frontend: Frontend) -> dict[str, Any]:
    response = frontend.client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, sample.labels.get("finished_reason", sample.labels.get("status", ""))): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


def test_the_schedulers_metrics_are_the_same_from_every_frontend(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_leases=2)
    backend.region.header["stats"][0]["running"] = 3
    frontends = [start_frontend(backend), start_frontend(backend)]
    scrapes = [frontend.client.get("/metrics").text for frontend in frontends]

    def series(text: str) -> set[str]:
        return {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}

    of_all = series(scrapes[0]) & series(scrapes[1])
    assert 'blink:num_requests_running{model_name="tiny"}' in of_all
    assert {name.partition("{")[0] for name in of_all} >= {
        "blink:kv_cache_usage_perc",
        "blink:scheduler_steps_total",
    }
    for lease, text in enumerate(scrapes):
        own = series(text) - of_all
        assert f'blink:num_requests_open{{lease="{lease}",model_name="tiny"}}' in own
        assert all(f'lease="{lease}"' in name for name in own)


def test_every_figure_of_the_scheduler_is_a_metric_once() -> None:
    shown = [*metrics.SCHEDULER_GAUGES, *metrics.SCHEDULER_COUNTERS]
    named_as_vllm = ["running", "waiting", "preempted", "prefix_queries", "prefix_hits"]
    assert sorted([*shown, *named_as_vllm]) == sorted(abi.Stats.names or ())


def test_metrics(frontend: Frontend, backend: MockBackend) -> None:
    backend.region.header["stats"][0]["running"] = 3
    backend.region.header["stats"][0]["free_pages"] = 75
    backend.region.header["stats"][0]["preempted"] = 2
    frontend.client.post("/v1/completions", json={"prompt": [5, 6, 7], "max_tokens": 10})
    frontend.client.post("/v1/completions", json={"prompt": [5], "max_tokens": 5, "stop": "!"})
    frontend.client.post("/v1/completions", json={})
    wait_until(lambda: scrape(frontend)["blink:reader_records_total", ""] >= 11)  # copied with each beat
    found = scrape(frontend)
    assert found["blink:prompt_tokens_total", ""] == 4
    assert 11 <= found["blink:generation_tokens_total", ""] <= 15
    assert found["blink:request_success_total", "length"] == 1
    assert found["blink:request_success_total", "stop"] == 1
    assert found["blink:http_responses_total", "200"] >= 2
    assert found["blink:http_responses_total", "400"] == 1
    assert found["blink:time_to_first_token_seconds_count", ""] == 2
    assert 9 <= found["blink:inter_token_latency_seconds_count", ""] <= 13
    assert found["blink:e2e_request_latency_seconds_count", ""] == 2
    assert found["blink:num_requests_running", ""] == 3
    assert found["blink:kv_cache_usage_perc", ""] == 0.25
    assert found["blink:num_preemptions_total", ""] == 2
    assert found["blink:num_requests_open", ""] == 0
