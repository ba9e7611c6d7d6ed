"""`logits_processors` and `logits_processor_args`: what is refused, and what the scheduler is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import CHAT, COMPLETION, Frontend, StartBackend, StartFrontend, error_of

from ringbuffer.abi import PROCESSOR_ARGS, PROCESSOR_WORDS, Reason

NAMES = ("ban", "mark", "length")
RESPONSE = {"input": "hi", "max_output_tokens": 2}
ENDPOINTS = [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)]
PATHS = pytest.mark.parametrize(("path", "body"), ENDPOINTS)


@pytest.fixture
def processing(start_backend: StartBackend, start_frontend: StartFrontend) -> Frontend:
    return start_frontend(start_backend(processors=NAMES))


def told(frontend: Frontend, path: str, body: dict[str, Any]) -> list[tuple[int, list[float]]]:
    """The processors of the request that the scheduler got, and what they are given."""
    response = frontend.client.post(path, json=body)
    assert response.status_code == 200, response.text
    row = frontend.backend.accepted[-1]
    assert row.descriptor is not None
    n_words = PROCESSOR_WORDS * int(row.descriptor["n_processors"])
    asked = row.controls[len(row.controls) - n_words :].reshape(-1, PROCESSOR_WORDS)
    return [(int(one[0]), one[1:].copy().view(np.float32).tolist()) for one in asked]


def given(*numbers: float) -> list[float]:
    """These, and zeros for those that are left out."""
    return [*numbers, *[0.0] * (PROCESSOR_ARGS - len(numbers))]


def test_the_scheduler_is_told(processing: Frontend) -> None:
    for path, body in ENDPOINTS:
        for neutral in (None, []):
            assert told(processing, path, {**body, "logits_processors": neutral}) == []
        one = {**body, "logits_processors": ["mark"]}
        assert told(processing, path, one) == [(1, given())]
        assert told(processing, path, {**one, "logits_processor_args": [0.5, -2]}) == [(1, given(0.5, -2))]
        several = {
            **body,
            "logits_processors": ["length", "ban"],
            "logits_processor_args": {"ban": [1, 2, 3, 4, 5, 6, 7, 8]},
        }
        assert told(processing, path, several) == [(2, given()), (0, given(*range(1, 9)))]


def test_beside_other_controls(processing: Frontend) -> None:
    """They stand behind those, which stay where they are."""
    body = {
        **COMPLETION, "logits_processors": ["ban"], "logit_bias": {"7": 1.5}, "allowed_token_ids": [7, 40],
        "bad_words": ["hello"], "logits_processor_args": {"ban": [3]},
    }  # fmt: skip
    assert told(processing, "/v1/completions", body) == [(0, given(3))]


NAMED, GIVEN = "logits_processors", "logits_processor_args"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({NAMED: ["nope"]}, NAMED, "names 'nope', and this server has 'ban', 'mark', 'length'"),
    ({NAMED: ["ban", "ban"]}, NAMED, "names 'ban' twice"),
    ({NAMED: ["ban"] * 5}, NAMED, "at most 4 items"),
    ({NAMED: [{"qualname": "x"}]}, f"{NAMED}[0]", "must be a string"),  # vLLM's form
    ({NAMED: "ban"}, NAMED, "must be an array"),
    ({GIVEN: [1]}, GIVEN, "names no processor for them"),
    ({NAMED: ["ban", "mark"], GIVEN: [1]}, GIVEN, '2 are named: {"ban": [...], "mark": [...]}'),
    ({NAMED: ["ban"], GIVEN: {"mark": [1]}}, GIVEN, "is for 'mark', and 'logits_processors' names 'ban'"),
    ({NAMED: ["ban"], GIVEN: [1] * 9}, GIVEN, "at most 8 items"),
    ({NAMED: ["ban"], GIVEN: [1e39]}, f"{GIVEN}[0]", "at most 3e+38"),
    ({NAMED: ["ban"], GIVEN: ["1"]}, f"{GIVEN}[0]", "must be a number"),
]


@PATHS
def test_what_cannot_be_is_refused(processing: Frontend, path: str, body: dict[str, Any]) -> None:
    for fields, param, message in REFUSED:
        error = error_of(processing.client.post(path, json={**body, **fields}), 400)
        assert error["param"] == param, error
        assert message in error["message"], error


@pytest.mark.usefixtures("kept_frontend")
@PATHS
def test_a_server_without_processors_says_so(frontend: Frontend, path: str, body: dict[str, Any]) -> None:
    error = error_of(frontend.client.post(path, json={**body, "logits_processors": ["ban"]}), 400)
    assert "has no logits processors: --logits-processor gives it some" in error["message"]


def test_anthropics_messages_have_none(processing: Frontend) -> None:
    refused = processing.client.post("/v1/messages", json={**CHAT, "logits_processors": ["ban"]})
    assert refused.status_code == 400
    assert "'logits_processors' is not supported" in refused.json()["error"]["message"]


def test_a_processor_that_leaves_no_token_is_named(
    processing: Frontend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scheduler only knows that there was none to sample."""
    backend = processing.backend
    monkeypatch.setattr(backend, "_reason", lambda row, token: row.count == 3 and Reason.NUMERICAL_FAULT)
    body = {**COMPLETION, "max_tokens": 9, "logits_processors": ["ban"]}
    error = error_of(processing.client.post("/v1/completions", json=body), 400)
    assert (error["code"], error["param"]) == ("no_token_left", "logits_processors")
    assert "'logits_processors' leaves no token for token" in error["message"]
