"""Reads streams whose events have names, as those of /v1/responses and /v1/messages."""

from __future__ import annotations

import json
from typing import Any

import httpx


def typed_events(response: httpx.Response) -> list[dict[str, Any]]:
    """Checks the framing, and that names and types agree."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    found = []
    for frame in response.text[:-2].split("\n\n"):
        name, data = frame.split("\n")
        assert name.startswith("event: ")
        found.append(json.loads(data.removeprefix("data: ")))
        assert found[-1]["type"] == name.removeprefix("event: ")
    return found
