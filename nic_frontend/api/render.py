"""/v1/completions/render and /v1/chat/completions/render: the tokens that a request's prompts become.

Routers look up what is cached of them. The form is vLLM's.
"""

from __future__ import annotations

from typing import Any

from nic_frontend.api.chat import parse_chat
from nic_frontend.api.completion import parse_completion
from nic_frontend.api.served import Served
from nic_frontend.http.long_json import numbers_of


async def render_completion(body: dict[str, Any], served: Served) -> list[dict[str, Any]]:
    """An object for each prompt."""
    job = await parse_completion(body, served)
    return [{"token_ids": numbers_of(prompt)} for prompt in job.prompts]


async def render_chat(body: dict[str, Any], served: Served) -> dict[str, Any]:
    job = await parse_chat(body, served)
    return {"token_ids": numbers_of(job.prompts[0])}
