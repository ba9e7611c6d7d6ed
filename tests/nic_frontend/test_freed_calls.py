"""A call that has ended holds no memory: its objects leave no cycles, since full collections of garbage come
seldom (processes/full_collections.py).
"""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fixtures import Speak
from harness import CHAT
from templates import HERMES
from waiting import wait_until

from nic_frontend.api.call import Call
from nic_frontend.api.job import Job
from nic_frontend.ring.request import Request

MOST_CHOICES = 3
TOOLS = [{"type": "function", "function": {"name": "f"}}]
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "completions": ("/v1/completions", {"prompt": "hi", "max_tokens": 4}),
    "chats": ("/v1/chat/completions", CHAT),
    "tools": ("/v1/chat/completions", {**CHAT, "tools": TOOLS}),
    "several": ("/v1/chat/completions", {**CHAT, "tools": TOOLS, "n": MOST_CHOICES, "logprobs": True}),
    "responses": ("/v1/responses", {"input": "hi", "max_output_tokens": 4}),
    "messages": ("/v1/messages", CHAT),
}


def alive() -> int:
    """Calls and jobs, and requests beside those that the connection holds until its next call."""
    kinds = [type(found) for found in gc.get_objects()]
    return kinds.count(Call) + kinds.count(Job) + max(0, kinds.count(Request) - MOST_CHOICES)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_has_ended_is_gone(speak: Speak, name: str, stream: bool) -> None:
    frontend = speak(HERMES, "hello")
    path, body = CALLS[name]
    gc.collect()
    gc.disable()
    try:
        for _ in range(2 * MOST_CHOICES):
            assert frontend.client.post(path, json={**body, "stream": stream}).status_code == 200
        wait_until(lambda: alive() == 0)
    finally:
        gc.enable()
