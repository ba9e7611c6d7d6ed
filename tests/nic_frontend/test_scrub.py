"""Whether a prompt can be read in the ring when its request is over."""

from __future__ import annotations

import numpy as np
import pytest
from harness import COMPLETION, StartBackend, StartFrontend, wait_until

PROMPT = list(range(11, 91))


@pytest.mark.parametrize("scrub", [False, True])
def test_a_released_prompt_is_cleared_when_asked(
    start_backend: StartBackend, start_frontend: StartFrontend, scrub: bool
) -> None:
    backend = start_backend()
    frontend = start_frontend(backend, scrub=scrub)
    for _ in range(3):
        assert (
            frontend.client.post("/v1/completions", json={**COMPLETION, "prompt": PROMPT}).status_code == 200
        )
    slots = frontend.service.tracker.slots
    wait_until(lambda: slots.n_free == slots.n_slots)
    assert bool(np.isin(PROMPT, backend.region.prompts).all()) is not scrub


def test_what_a_killed_frontend_left_is_cleared_at_the_start(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    backend = start_backend()
    backend.region.prompts[...] = 7
    start_frontend(backend, scrub=True)
    assert not backend.region.prompts.any()


def test_prompts_of_requests_that_are_open_stay(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """A scheduler reads a prompt again when it paused the request."""
    backend = start_backend(step_s=0.02)
    frontend = start_frontend(backend, scrub=True)
    body = {**COMPLETION, "prompt": PROMPT, "max_tokens": 50, "stream": True}
    backend.held = lambda row: row.prompt == PROMPT and row.count > 0
    with frontend.client.stream("POST", "/v1/completions", json=body) as stream:
        lines = stream.iter_lines()
        next(lines)
        for _ in range(3):
            frontend.client.post("/v1/completions", json={**COMPLETION, "prompt": [5] * 40})
        assert np.isin(PROMPT, backend.region.prompts).all()
        backend.held = lambda row: False
    wait_until(lambda: not backend.region.prompts.any())
