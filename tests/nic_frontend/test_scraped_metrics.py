"""What /metrics shows of a frontend and of the scheduler."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from harness import Frontend, StartBackend, StartFrontend, wait_until
from mock_backend import MockBackend
from prometheus_client.parser import text_string_to_metric_families

from nic_frontend.observe import exposition, shared_figures
from nic_frontend.observe.shared_figures import BLOCK_BYTES, FIGURES_BYTES, HEAD, SharedFigures
from nic_frontend.ring.host_segment import HostSegment, segment_path
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

    of_all = {name for name in series(scrapes[0]) & series(scrapes[1]) if "lease=" not in name}
    assert 'blink:num_requests_running{model_name="tiny"}' in of_all
    assert {name.partition("{")[0] for name in of_all} >= {
        "blink:kv_cache_usage_perc",
        "blink:scheduler_steps_total",
    }
    for lease, text in enumerate(scrapes):
        assert f'blink:num_requests_open{{lease="{lease}",model_name="tiny"}}' in series(text)
        assert series(text) >= of_all


def test_a_scrape_shows_all_frontends_of_the_host_whichever_answers(
    start_backend: StartBackend, model_dir: Path
) -> None:
    backend = start_backend(n_leases=2)
    frontends = [Frontend(backend, model_dir), Frontend(backend, model_dir)]
    for frontend, n in zip(frontends, (3, 5), strict=True):
        frontend.client.post("/v1/completions", json={"prompt": [5], "max_tokens": n, "ignore_eos": True})
    shown = {
        'blink:generation_tokens_total{lease="0",model_name="tiny"} 3.0',
        'blink:generation_tokens_total{lease="1",model_name="tiny"} 5.0',
        'blink:time_to_first_token_seconds_count{lease="1",model_name="tiny"} 1.0',
    }
    for frontend in frontends:
        wait_until(lambda frontend=frontend: shown <= set(frontend.client.get("/metrics").text.splitlines()))  # type: ignore[misc]
    path = segment_path(backend.path)
    assert path.exists()
    frontends[1].stop()
    text = frontends[0].client.get("/metrics").text
    assert 'lease="0"' in text
    assert 'lease="1"' not in text
    frontends[0].stop()
    assert not path.exists()


def shared(path: Path, lease: int) -> SharedFigures:
    return SharedFigures(HostSegment(path, FIGURES_BYTES), lease)


def test_figures_of_a_frontend_that_died_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = (shared(tmp_path / "f", lease) for lease in (0, 7))
    other.publish({"open": 1})
    assert own.others() == {7: {"open": 1}}
    monkeypatch.setattr(shared_figures, "STALE_S", 0.0)
    assert own.others() == {}


def test_while_a_block_is_written_the_figures_before_are_shown(tmp_path: Path) -> None:
    own, other = (shared(tmp_path / "f", lease) for lease in (0, 1))
    other.publish({"open": 1})
    other.publish({"open": 2})
    assert own.others() == {1: {"open": 2}}
    at = BLOCK_BYTES + HEAD.size  # of the half that was written last
    other._segment.memory[at : at + 4] = b"torn"
    assert own.others() == {1: {"open": 1}}


def test_a_file_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "figures"
    path.touch(0o600)
    path.chmod(0o666)
    with pytest.raises(PermissionError, match="belongs to others, or is open to them: remove it"):
        shared(path, 0)
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        shared(tmp_path / "link", 0)


def test_the_memory_of_a_file_is_there_when_it_has_been_made(tmp_path: Path) -> None:
    """Where /dev/shm is full later, a frontend that writes into a hole is killed."""
    HostSegment(tmp_path / "b", 1 << 20)
    assert (tmp_path / "b").stat().st_blocks * 512 >= 1 << 20


def test_a_file_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "figures"
    first = shared(path, 0)
    path.unlink()
    second = shared(path, 1)
    second.publish({"open": 2})
    first.publish({"open": 1})
    assert first.others() == {1: {"open": 2}}
    assert second.others() == {0: {"open": 1}}


BOARDS_OF_VLLM = (  # what Grafana boards made for vLLM ask for
    "e2e_request_latency_seconds_bucket", "e2e_request_latency_seconds_count",
    "e2e_request_latency_seconds_sum",
    "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_bucket",
    "time_per_output_token_seconds_bucket", "prompt_tokens_total", "generation_tokens_total",
    "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "request_prompt_tokens_bucket",
    "request_generation_tokens_bucket", "request_success_total", "request_queue_time_seconds_sum",
    "request_prefill_time_seconds_sum", "request_decode_time_seconds_sum",
    "request_max_num_generation_tokens_sum", "request_params_max_tokens_sum", "prefix_cache_queries_total",
    "prefix_cache_hits_total", "num_preemptions_total", "request_time_per_output_token_seconds_bucket",
    "request_prefill_kv_computed_tokens_bucket",
)  # fmt: skip


def test_vllms_names_are_of_all_frontends_together(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(n_leases=2)
    frontends = [start_frontend(backend, metrics_names="vllm") for _ in range(2)]
    for frontend in frontends:
        frontend.client.post("/v1/completions", json={"prompt": [5], "max_tokens": 4, "ignore_eos": True})
    total = 'vllm:generation_tokens_total{engine="0",model_name="tiny"} 8.0'
    wait_until(lambda: total in frontends[0].client.get("/metrics").text.splitlines())
    text = frontends[0].client.get("/metrics").text
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {f"vllm:{name}" for name in BOARDS_OF_VLLM} <= {sample.name for sample in samples}
    assert not any("lease" in sample.labels for sample in samples)
    named_otherwise = {sample.name for sample in samples if not sample.name.startswith("vllm:")}
    assert named_otherwise <= {"blink:cache_config_info"}  # which routers know by either name


def wait_for_first_tokens(backend: MockBackend, frontend: Frontend) -> None:
    """No request has a second token before the frontend has counted the first one. On a busy machine several
    may otherwise arrive at once, with no time between them."""
    backend.held = lambda row: row.count > 0 and frontend.service.metrics.generation_tokens == 0


def test_where_a_requests_time_went(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    """Queue and prefill make the time to the first token. The backend admits at once, and stalls then."""
    backend = start_backend(step_s=0.02)
    frontend = start_frontend(backend)
    wait_for_first_tokens(backend, frontend)
    backend.stalled.set()
    began = time.monotonic()

    def go_on() -> None:
        """Much later than the request was admitted, however long that took."""
        waited_s = wait_until(lambda: backend.accepted)
        time.sleep(1.0 + 2 * max(waited_s, time.monotonic() - began))
        backend.stalled.clear()

    threading.Thread(target=go_on).start()
    frontend.client.post("/v1/completions", json={"prompt": [5], "max_tokens": 5, "ignore_eos": True})
    wait_until(lambda: scrape(frontend)["blink:e2e_request_latency_seconds_count", ""] == 1)
    found = scrape(frontend)
    parts = {
        name: found[f"blink:request_{name}_time_seconds_sum", ""] for name in ("queue", "prefill", "decode")
    }
    whole = found["blink:e2e_request_latency_seconds_sum", ""]
    ttft = found["blink:time_to_first_token_seconds_sum", ""]
    assert parts["queue"] + parts["prefill"] == pytest.approx(ttft)
    assert parts["prefill"] > parts["queue"]
    assert parts["decode"] > 0
    assert sum(parts.values()) <= whole


def test_every_figure_of_the_scheduler_is_a_metric_once() -> None:
    shown = [
        *exposition.SCHEDULER_GAUGES, *exposition.SCHEDULER_COUNTERS, *exposition.DRAFT_COUNTERS,
    ]  # fmt: skip
    named_as_vllm = ["running", "waiting", "preempted", "prefix_queries", "prefix_hits"]
    assert sorted([*shown, *named_as_vllm]) == sorted(abi.Stats.names or ())


def test_metrics(frontend: Frontend, backend: MockBackend) -> None:
    backend.region.header["stats"][0]["running"] = 3
    backend.region.header["stats"][0]["free_pages"] = 75
    backend.region.header["stats"][0]["preempted"] = 2
    wait_for_first_tokens(backend, frontend)
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
