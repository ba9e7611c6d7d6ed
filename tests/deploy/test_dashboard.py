"""The Grafana board asks for what /metrics has, and a real Prometheus answers every question of it."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import httpx
import pytest
from free_port import free_port
from harness import Frontend, StartBackend, StartFrontend
from limits import START_S, WAIT_S
from prometheus_client.parser import text_string_to_metric_families
from waiting import wait_until

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana"
BOARD = json.loads((FOLDER / "blink.json").read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
QUERIES = {
    f"{panel['title']}: {target['legendFormat'] or 'value'}": target["expr"]
    for panel in PANELS
    for target in panel["targets"]
}
SELECTOR = re.compile(r"(blink:\w+)\{([^}]*)\}")


def asked(query: str) -> Iterator[tuple[str, set[str]]]:
    """The metrics of a query, and the labels that it selects by."""
    for name, labels in SELECTOR.findall(query):
        yield name, set(re.findall(r"(\w+)=", labels))


def traffic(frontends: list[Frontend]) -> None:
    for frontend in frontends:
        body = {"prompt": [5, 6, 7, 8], "max_tokens": 8, "ignore_eos": True}
        frontend.client.post("/v1/completions", json=body)
        frontend.client.post("/v1/completions", json={"prompt": 3.5})


def test_every_metric_and_label_of_the_board_is_there(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend())
    traffic([frontend])
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(frontend.client.get("/metrics").text):
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    for title, query in QUERIES.items():
        metrics = list(asked(query))
        assert metrics, title
        assert query.count("blink:") == len(metrics), title
        by = {name for group in re.findall(r"by \(([^)]*)\)", query) for name in group.split(", ")}
        for name, selected in metrics:
            assert name in labels, title
            assert selected <= labels[name], title
            assert by <= labels[name], title
    variable = BOARD["templating"]["list"][1]["definition"]
    (name,) = re.findall(r"blink:\w+", variable)
    assert "model_name" in labels[name]


def test_panels_have_titles_units_and_room_of_their_own() -> None:
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert all(panel["title"] for panel in BOARD["panels"])
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)

    def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        return {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }

    for one, other in combinations(BOARD["panels"], 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[str], httpx.Client]]:
    """A function that starts a Prometheus that scrapes a target, twice a second."""
    program = shutil.which("prometheus")
    if program is None:
        pytest.skip("needs prometheus (Debian: apt-get install prometheus)")
    started: list[subprocess.Popen[bytes]] = []

    def start(target: str) -> httpx.Client:
        settings = (FOLDER / "prometheus.yml").read_text()
        assert "127.0.0.1:8000" in settings
        path = tmp_path / "prometheus.yml"
        path.write_text(settings.replace("127.0.0.1:8000", target).replace("interval: 5s", "interval: 500ms"))
        port = free_port()
        command = [program, f"--config.file={path}", f"--storage.tsdb.path={tmp_path}/data"]
        command.append(f"--web.listen-address=127.0.0.1:{port}")
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=WAIT_S)
        wait_until(lambda: is_ready(client), START_S)
        return client

    yield start
    for process in started:
        process.terminate()
        process.wait(WAIT_S)


def is_ready(client: httpx.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx.TransportError:
        return False


def ask(client: httpx.Client, query: str) -> list[float]:
    """The values that are numbers. Prometheus must take the query."""
    answer = client.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    values = [float(series["value"][1]) for series in answer["data"]["result"]]
    return [value for value in values if not math.isnan(value)]


@pytest.mark.slow
def test_prometheus_answers_every_query_of_the_board(
    start_backend: StartBackend, start_frontend: StartFrontend, prometheus: Callable[[str], httpx.Client]
) -> None:
    backend = start_backend(n_leases=2)
    backend.region.header["stats"][0]["prefix_queries"] = 10
    frontends = [start_frontend(backend), start_frontend(backend)]
    client = prometheus(frontends[0].url.removeprefix("http://"))
    over = threading.Event()

    def serve() -> None:
        while not over.wait(0.05):
            traffic(frontends)
            backend.region.header["stats"][0]["prefix_queries"] += 10

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        unanswered = dict(QUERIES)

        def all_answered() -> bool:
            for title, query in list(unanswered.items()):
                if ask(client, query.replace("$model", "tiny").replace("$__rate_interval", "10s")):
                    del unanswered[title]
            return not unanswered

        wait_until(all_answered, WAIT_S, "an answer to every query")
    finally:
        over.set()
        serving.join()
    received = sum(frontend.service.metrics.generation_tokens for frontend in frontends)
    total = "sum(blink:generation_tokens_total)"  # over one connection that Prometheus keeps
    wait_until(lambda: ask(client, total) == [received])
    assert len(ask(client, "blink:generation_tokens_total")) == 2
