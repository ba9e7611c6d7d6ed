"""The server of scripts/bench/served.py: its backend is changed, stopped and looked into."""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Iterator

import pytest
from bench.served import Served
from bench.ways import NONE, parse_way
from limits import WAIT_S

from blink.model_directory import demo_directory
from gpu_backend.options import BackendOptions

pytestmark = pytest.mark.slow

CONFIG = parse_way('{"num_speculative_tokens": 3, "prompt_lookup_max": 2, "prompt_lookup_min": 1}')[1]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    options = BackendOptions(
        demo_directory(), f"test-served-{os.getpid()}", device="cpu", max_batch=4, kv_memory=64 << 20,
        leases=2, speculative_config=CONFIG,
    )  # fmt: skip
    with Served(options) as server:
        yield server


def answer(port: int, tokens: int) -> int:
    """How many tokens a request is answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_S)
    body = {"model": "m", "prompt": "1 2 3 1 2 3 1 2 3", "max_tokens": tokens, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    found = json.loads(connection.getresponse().read())
    connection.close()
    return int(found["usage"]["completion_tokens"])


def test_a_way_begins_with_counters_of_its_own(served: Served) -> None:
    assert served.started.machine == "cpu"
    for way in (CONFIG, NONE):
        served.change(way)
        with served.frontends(2) as port:
            assert answer(port, 40) == 40
        stats = served.look().stats
        assert stats["tokens"] == 40
        assert (stats["draft_tokens"] > 0) == (way is CONFIG)


def test_a_backend_that_was_stopped_goes_on(served: Served) -> None:
    served.change(CONFIG)
    before = served.look().stats["steps"]
    with served.frontends(1) as port:
        with served.stopped():
            time.sleep(0.3)
        assert answer(port, 5) == 5
    look = served.look()
    assert look.stats["steps"] > before
    assert len(look.trace) > 0
