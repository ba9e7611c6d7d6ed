"""Records that the scheduler cannot have written: something else writes to the ring."""

from __future__ import annotations

import json

from harness import CHAT, COMPLETION, StartBackend, StartFrontend, error_of
from scripted_answers import say
from tiny_model import VOCAB_SIZE


def test_a_token_beyond_the_vocabulary_ends_its_request_with_an_error_of_its_own(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend(script=say([7, 8, VOCAB_SIZE, 9]))
    frontend = start_frontend(backend)
    for url, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)):
        response = frontend.client.post(url, json={**body, "max_tokens": 4})
        assert "was damaged" in error_of(response, 502)["message"]
    streamed = frontend.client.post("/v1/completions", json={**COMPLETION, "max_tokens": 4, "stream": True})
    events = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    assert "was damaged" in json.loads(events[-2])["error"]["message"]
    backend.script = say([7, 8, 9])
    assert frontend.client.post("/v1/completions", json=COMPLETION).status_code == 200
