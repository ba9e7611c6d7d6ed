"""What a request to /v1/responses asks for in vain: taken, as clients send it to all servers, and told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from nic_frontend.api.memory import FLAG, Memory
from nic_frontend.api.notes import on_fields, unsupported
from nic_frontend.api.schema.responses import LOGPROBS, SEALED, Reasoning, ResponsesRequest, TextOptions
from ringbuffer.model_file import shown

MOST_NAMES = 16  # that one sentence tells


def without_effect(body: dict[str, Any], request: ResponsesRequest, memory: Memory) -> list[str]:
    """A sentence for each kind of thing that the request asks for in vain."""
    warnings = on_fields(body, ResponsesRequest)
    asked = _given(body, ResponsesRequest, *unsupported(ResponsesRequest))
    asked += [f"reasoning.{name}" for name in _given(body.get("reasoning"), Reasoning)]
    asked += [f"text.{name}" for name in _given(body.get("text"), TextOptions)]
    asked += ["truncation"] if request.truncation == "auto" else []
    if asked:
        warnings.append(f"without effect: {_listed(asked)}")
    vain = [value for value in request.include or () if value not in (LOGPROBS, SEALED)]
    if vain:
        warnings.append(f"without effect in 'include': {_listed(vain)}")
    if request.top_logprobs and LOGPROBS not in (request.include or ()):
        warnings.append(f"'top_logprobs' was ignored: it needs '{LOGPROBS}' in 'include'")
    if memory.store is None and request.store is not False:
        warnings.append(f"nothing is stored: 'store' needs a server that was started with {FLAG}")
    return warnings


def _given(object: Mapping[str, Any] | None, model: type, *known: str) -> list[str]:
    """The members of an object that ask for something, and mean nothing to its model."""
    means = {*known, *(field.encode_name for field in msgspec.structs.fields(model))}
    return [name for name, value in (object or {}).items() if value is not None and name not in means]


def _listed(names: list[str]) -> str:
    return ", ".join(map(shown, names[:MOST_NAMES]))
