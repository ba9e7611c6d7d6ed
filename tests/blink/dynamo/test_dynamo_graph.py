"""blink as a backend of NVIDIA Dynamo, with its own frontend and router, and emulated workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from demo_client import ask, chat, items, right
from free_port import free_port
from graph import ROOT, RUN, Graph, Worker
from graph_stream import Stream
from limits import START_S, WAIT_S
from needs import skip_if_missing
from process_state import slowed
from waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

EVENT_S = 10.0  # from a worker to the router, over ZeroMQ, on a busy machine
LONG = {"model": "demo", "prompt": "Count from 1 to 60.", "max_tokens": 600, "temperature": 0}


@pytest.fixture(scope="module", autouse=True)
def installed() -> None:
    done = subprocess.run([RUN, "true"], capture_output=True, text=True, timeout=START_S)
    skip_if_missing("dynamo", done)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """With two workers, for tests that end none of them."""
    graph = Graph(tmp_path_factory.mktemp("shared"))
    try:
        graph.wait_for(graph.start_worker(), graph.start_worker())
        yield graph
    finally:
        graph.close()


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    """For tests that end workers."""
    graph = Graph(tmp_path_factory.mktemp("ended"))
    try:
        yield graph
    finally:
        graph.close()


@pytest.fixture
def two(ended: Graph) -> list[Worker]:
    """Of its workers those that the tests before have left, and as many new ones as are lacking."""
    workers = [worker for worker in ended.workers if worker.process.poll() is None]
    workers += [ended.start_worker() for _ in range(2 - len(workers))]
    ended.wait_for(*workers)
    return workers


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(tmp_path)
    try:
        yield graph
    finally:
        graph.close()


def admitted(workers: list[Worker]) -> list[int]:
    return [worker.stats()["admitted"] for worker in workers]


def more(workers: list[Worker], before: list[int]) -> list[int]:
    return [now - then for now, then in zip(admitted(workers), before, strict=True)]


def complete(graph: Graph, prompt: str, **fields: Any) -> dict[str, Any]:
    body = {"model": "demo", "prompt": prompt, "max_tokens": 4, "temperature": 0, **fields}
    response = graph.client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_answers_are_right_and_every_worker_gives_some(shared: Graph) -> None:
    before = admitted(shared.workers)
    chosen = [item for task in ("count", "add", "lookup_long") for item in items(task, 4)]
    bodies = [chat(item, model="demo", stream=bool(i % 2)) for i, item in enumerate(chosen)]
    assert sum(right(chosen, ask(shared.url, bodies))) >= len(chosen) - 1
    given = more(shared.workers, before)
    assert sum(given) == len(chosen)
    assert min(given) >= 1


def test_the_same_prefix_goes_to_the_worker_that_has_it(shared: Graph) -> None:
    before = admitted(shared.workers)
    prefixes = [
        f"{name} was a brave fox. One day {name} met an owl. " * 20 for name in ("Ed", "Mia", "Tom", "Sam")
    ]
    ask(
        shared.url,
        [{"model": "demo", "prompt": prefix, "max_tokens": 4, "temperature": 0} for prefix in prefixes],
    )
    assert min(more(shared.workers, before)) >= 1, "the router has put all prefixes on one worker"
    wait_until(lambda: all(worker.told_all for worker in shared.workers), WAIT_S, "events that are told")
    time.sleep(EVENT_S)
    for prefix in 2 * prefixes:
        usage = complete(shared, f"{prefix} Tell me more.")["usage"]
        assert usage["prompt_tokens_details"]["cached_tokens"] > 0.9 * usage["prompt_tokens"]


def test_a_killed_worker_loses_its_streams_alone_and_another_takes_its_share(
    ended: Graph, two: list[Worker]
) -> None:
    killed, left = two
    prompts = [f"Count from {n} to 60." for n in range(1, 7)]
    with slowed(killed.backend):  # on a busy machine its streams would end before all have begun
        streams = [Stream(ended, {**LONG, "prompt": prompt}) for prompt in prompts]
        wait_until(lambda: all(stream.events for stream in streams), WAIT_S, "first tokens")
        lost = killed.open_requests
        assert 1 <= lost < len(streams)
        os.kill(killed.process.pid, signal.SIGKILL)
    for stream in streams:
        stream.join(WAIT_S)
    failed = [stream for stream in streams if stream.error]
    assert len(failed) == lost
    assert all(stream.error["code"] == 503 and stream.error["message"] for stream in failed)
    assert all(stream.text.rstrip(".").endswith(" 60") for stream in streams if stream not in failed)

    before = admitted([left])[0]
    for n in range(4):
        complete(ended, f"{n} is a number.")
    assert admitted([left])[0] == before + 4

    added = ended.start_worker()
    ended.wait_for(left, added)
    ask(ended.url, [{**LONG, "prompt": f"Tell me {n}.", "max_tokens": 30} for n in range(8)])
    assert admitted([added])[0] >= 1


def test_a_worker_that_is_told_to_end_finishes_its_streams(ended: Graph, two: list[Worker]) -> None:
    ending, _ = two
    ring, before = ending.ring, admitted([ending])[0]
    streams = [Stream(ended, {**LONG, "prompt": f"Tell me: count from {n} to 60."}) for n in range(1, 7)]
    wait_until(lambda: all(stream.events for stream in streams), WAIT_S, "first tokens")
    assert admitted([ending])[0] > before
    ending.process.terminate()
    for stream in streams:
        stream.join(WAIT_S)
        assert stream.error is None
        assert stream.text.rstrip(".").endswith(" 60")
    assert ending.process.wait(WAIT_S) == 0, ending.log
    assert not ring.exists()
    complete(ended, "Once upon a time")


def test_a_worker_whose_backend_dies_ends_and_says_why(ended: Graph, two: list[Worker]) -> None:
    worker, _ = two
    os.kill(worker.backend, signal.SIGKILL)
    assert worker.process.wait(WAIT_S) == 1
    assert "blink dynamo: error: the backend was killed by SIGKILL" in worker.log
    assert not worker.ring.exists()
    wait_until(lambda: ended.routed() == 1, WAIT_S, "the router forgets the worker")
    complete(ended, "Once upon a time")


def test_a_client_that_leaves_frees_its_place(shared: Graph) -> None:
    with shared.client.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as response:
        next(response.iter_lines())
    wait_until(
        lambda: 1 in [worker.stats()["cancelled"] for worker in shared.workers], WAIT_S, "the cancellation"
    )


def test_a_worker_attaches_to_a_backend_that_runs(graph: Graph) -> None:
    name = f"test-dynamo-{os.getpid()}"
    command = [
        sys.executable,
        "-m",
        "blink",
        "backend",
        "demo",
        "--device=cpu",
        "--threads=1",
        f"--ring={name}",
    ]
    with subprocess.Popen([*command, "--kv-events=64"], cwd=ROOT) as backend:
        try:
            worker = graph.start_worker(f"--ring={name}", own=False)
            graph.wait_for(worker)
            prompt = "Once upon a time there was a fox named Ed. " * 4
            complete(graph, prompt)
            assert complete(graph, prompt)["usage"]["prompt_tokens_details"]["cached_tokens"] >= 16
            worker.process.terminate()
            assert worker.process.wait(WAIT_S) == 0
            assert backend.poll() is None
        finally:
            backend.terminate()


def test_log_probabilities_come_with_the_tokens(shared: Graph) -> None:
    told = complete(shared, "Count from 1 to 9.", logprobs=2)["choices"][0]["logprobs"]
    assert len(told["tokens"]) == len(told["token_logprobs"]) == 4
    assert all(-1 < logprob <= 0 for logprob in told["token_logprobs"])
    assert all(len(likeliest) == 2 for likeliest in told["top_logprobs"])
    talk = [{"role": "user", "content": "Count from 1 to 9."}]
    body = {"model": "demo", "messages": talk, "max_tokens": 4, "logprobs": True, "top_logprobs": 3}
    answer = shared.client.post("/v1/chat/completions", json=body).json()
    content = answer["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert len(entry["top_logprobs"]) == 3
        assert entry["logprob"] <= entry["top_logprobs"][0]["logprob"] + 1e-6


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"guided_choice": ["left", "right"]}, "left|right"),
        ({"guided_regex": "[0-9]{4}-[0-9]{2}"}, "[0-9]{4}-[0-9]{2}"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"enum": [12, 345]}},
                }
            },
            "12|345",
        ),
    ],
)
def test_answers_have_their_form(shared: Graph, fields: dict[str, Any], form: str) -> None:
    talk = [{"role": "user", "content": "Tell me a story."}]
    body = {"model": "demo", "messages": talk, "max_tokens": 20, "temperature": 0, **fields}
    response = shared.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    assert re.fullmatch(form, response.json()["choices"][0]["message"]["content"])


def test_what_is_not_served_is_refused_by_name(shared: Graph) -> None:
    for named, fields in {
        "max_tokens": {"max_tokens": 5000},
        "max_thinking_tokens": {"nvext": {"max_thinking_tokens": 5}},
        "at #/uniqueItems": {"guided_json": {"type": "array", "uniqueItems": True}},
    }.items():
        response = shared.client.post("/v1/completions", json={"model": "demo", "prompt": "hello", **fields})
        assert response.status_code == 400
        assert named in response.json()["message"]
    complete(shared, "hello")


def test_a_worker_shows_its_health_and_metrics(graph: Graph) -> None:
    port = free_port()
    worker = graph.start_worker(
        DYN_SYSTEM_PORT=str(port), DYN_HEALTH_CHECK_ENABLED="true", DYN_CANARY_WAIT_TIME="1"
    )
    graph.wait_for(worker)
    complete(graph, "Once upon a time")
    url = f"http://127.0.0.1:{port}"
    wait_until(lambda: httpx.get(f"{url}/health", timeout=WAIT_S).status_code == 200, WAIT_S, "health")
    wait_until(lambda: worker.stats()["admitted"] >= 2, WAIT_S, "a canary, when the worker is idle")
    shown = httpx.get(f"{url}/metrics", timeout=WAIT_S).text
    assert "blink:request_success_total{" in shown
    assert "dynamo_component_total_blocks" in shown
