"""What a model's generation_config.json recommends, where a request does not say."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend
from mock_backend import MockBackend
from sse import events

from nic_frontend.api.sampling_defaults import read_defaults

FILE = {"temperature": 0.5, "top_p": 0.75, "top_k": 20, "min_p": 0.125, "repetition_penalty": 1.25}
NEUTRAL = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


@pytest.fixture
def recommending(backend: MockBackend, model_dir: Path, tmp_path: Path) -> Iterator[Frontend]:
    """A frontend whose model recommends FILE."""
    directory = Path(shutil.copytree(model_dir, tmp_path / "model"))
    write(directory, {**FILE, "do_sample": False, "eos_token_id": 1})
    frontend = Frontend(backend, directory)
    yield frontend
    frontend.stop()


def write(directory: Path, content: Any) -> None:
    (directory / "generation_config.json").write_text(json.dumps(content))


def sampled(backend: MockBackend) -> dict[str, float]:
    """The sampling of the request that reached the backend last."""
    descriptor = backend.accepted[-1].descriptor
    return {name: float(descriptor[name]) for name in NEUTRAL}


def test_what_a_request_leaves_out(recommending: Frontend, backend: MockBackend) -> None:
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)):
        assert recommending.client.post(path, json={**body, "top_p": None}).status_code == 200
        assert sampled(backend) == FILE
        assert len(events(recommending.client.post(path, json={**body, "stream": True}))) >= 2
        assert sampled(backend) == FILE


def test_a_requests_own_value_wins(recommending: Frontend, backend: MockBackend) -> None:
    for name, neutral in NEUTRAL.items():
        assert recommending.client.post("/v1/completions", json={**COMPLETION, name: neutral}).is_success
        assert sampled(backend) == {**FILE, name: neutral}
    recommending.client.post("/v1/completions", json={**COMPLETION, "temperature": 0, "top_k": -1})
    assert sampled(backend) == {**FILE, "temperature": 0.0, "top_k": 0}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"do_sample": False},
        {"top_k": None, "max_new_tokens": 5},
        {"temperature": None, "eos_token_id": [1, 2], "max_length": int(1e30), "max_time": float("inf")},
    ],
)
def test_a_file_that_recommends_nothing(tmp_path: Path, content: dict[str, Any]) -> None:
    write(tmp_path, content)
    assert read_defaults(tmp_path) == {}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"top_k": 0}, {"top_k": 0}),
        ({"top_k": -1}, {"top_k": -1}),
        ({"top_k": 50.0}, {"top_k": 50}),
        ({"top_k": int(1e30)}, {"top_k": 0}),  # all tokens
        ({"top_k": 1e30}, {"top_k": 0}),
        ({"temperature": 0, "top_p": 1, "min_p": None}, {"temperature": 0, "top_p": 1}),
    ],
)
def test_what_published_files_say_of_no_limit(
    tmp_path: Path, written: dict[str, Any], read: dict[str, Any]
) -> None:
    write(tmp_path, written)
    assert read_defaults(tmp_path) == read


def test_no_file(tmp_path: Path) -> None:
    assert read_defaults(tmp_path) == {}


def test_the_log_tells_what_was_taken(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {"temperature": 0.6, "top_k": 20, "do_sample": True})
    with caplog.at_level(logging.INFO):
        read_defaults(tmp_path)
    assert "generation_config.json: temperature 0.6, top_k 20" in caplog.text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"temperature": 2.5}, "'temperature' must be at most 2, it is 2.5"),
        ({"top_p": 0}, "'top_p'"),
        ({"top_k": "all"}, "'top_k' must be an integer"),
        ({"min_p": float("nan")}, "'min_p'"),
        ({"temperature": 10**400}, "'temperature'"),
        ({"top_k": -(10**400)}, "'top_k' must be at least -1, it is -1000"),
        ({"repetition_penalty": True}, "'repetition_penalty'"),
        ([], "expected a JSON object"),
    ],
)
def test_bad_files_are_refused_at_start(tmp_path: Path, content: Any, told: str) -> None:
    write(tmp_path, content)
    with pytest.raises(ValueError, match=told) as refusal:
        read_defaults(tmp_path)
    assert str(tmp_path / "generation_config.json") in str(refusal.value)
    assert len(str(refusal.value)) < 300
