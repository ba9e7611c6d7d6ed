"""`priority`: refused where the server does not order requests by it, else handed to the scheduler."""

from __future__ import annotations

from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, StartBackend, StartFrontend, error_of

RESPONSE = {"input": "hi", "max_output_tokens": 2}
ENDPOINTS = [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT), ("/v1/responses", RESPONSE)]
PATHS = pytest.mark.parametrize(("path", "body"), ENDPOINTS)


@pytest.fixture
def ordering(start_backend: StartBackend, start_frontend: StartFrontend) -> Frontend:
    return start_frontend(start_backend(priorities=True))


def priority_of(frontend: Frontend, path: str, body: dict[str, Any]) -> int:
    assert frontend.client.post(path, json=body).status_code == 200
    descriptor = frontend.backend.accepted[-1].descriptor
    assert descriptor is not None
    return int(descriptor["priority"])


@pytest.mark.usefixtures("kept_frontend")
@PATHS
def test_without_the_policy_the_flag_is_named(frontend: Frontend, path: str, body: dict[str, Any]) -> None:
    for priority in (-128, -1, 1, 127):
        error = error_of(frontend.client.post(path, json={**body, "priority": priority}), 400)
        assert (error["param"], error["code"]) == ("priority", "unsupported_parameter")
        assert error["message"].startswith(f"'priority' is {priority}, but")
        assert "--scheduling-policy priority" in error["message"]
    for neutral in (None, 0, 0.0):
        assert priority_of(frontend, path, {**body, "priority": neutral}) == 0


def test_the_scheduler_is_told(ordering: Frontend) -> None:
    for path, body in ENDPOINTS:
        assert priority_of(ordering, path, body) == 0
        for priority in (-128, -1, 0, 1, 127):
            assert priority_of(ordering, path, {**body, "priority": priority}) == priority
    several = {"prompt": ["a", "b"], "n": 2, "max_tokens": 1, "priority": 7}
    assert ordering.client.post("/v1/completions", json=several).status_code == 200
    told = [
        row.descriptor["priority"] for row in ordering.backend.accepted[-4:] if row.descriptor is not None
    ]
    assert told == [7] * 4


@pytest.mark.parametrize(
    ("priority", "message"),
    [
        (-129, "'priority' must be at least -128"),
        (128, "'priority' must be at most 127"),
        (2**70, "'priority' must be"),
        (True, "'priority' must be an integer"),
        ("high", "'priority' must be an integer"),
        (1.5, "'priority' must be an integer"),
    ],
)
@pytest.mark.usefixtures("kept_frontend")
@PATHS
def test_what_is_no_priority_is_refused(
    frontend: Frontend, path: str, body: dict[str, Any], priority: Any, message: str
) -> None:
    error = error_of(frontend.client.post(path, json={**body, "priority": priority}), 400)
    assert error["param"] == "priority"
    assert error["message"].startswith(message)


def test_anthropics_messages_have_none(ordering: Frontend) -> None:
    """A client that asks for one there is told so, whatever the policy."""
    refused = ordering.client.post("/v1/messages", json={**CHAT, "priority": 1})
    assert refused.status_code == 400
    assert "'priority' is not supported" in refused.json()["error"]["message"]
    assert ordering.client.post("/v1/messages", json={**CHAT, "priority": 0}).status_code == 200
