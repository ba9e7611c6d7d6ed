"""Fields that an endpoint does not have: which are refused, and which look like mistakes."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from nic_frontend.api import fields
from nic_frontend.api.schema.chat import ChatRequest
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.schema.messages import MessagesRequest
from nic_frontend.api.schema.responses import ResponsesRequest
from nic_frontend.api.schema.rows import Neutral, refused, rows

SHARED = (ChatRequest, CompletionRequest)  # whose fields other endpoints refuse if they do not have them
OF_OTHERS: dict[type, Neutral] = {
    ResponsesRequest: fields.UNSUPPORTED_IN_RESPONSES,
    MessagesRequest: fields.UNSUPPORTED_IN_MESSAGES,
}


@functools.cache
def unsupported(model: type) -> Neutral:
    """All that a request of this model is refused for, with the values that ask for nothing."""
    return {**fields.UNSUPPORTED, **OF_OTHERS.get(model, {}), **refused(model, SHARED)}


def refuse_unsupported(body: dict[str, Any], model: type) -> None:
    """Raises ApiError 400 that names all fields which ask for something."""
    fields.refuse(body, unsupported(model))


@functools.cache
def known(model: type) -> frozenset[str]:
    """The fields of a request that nobody has to be told about."""
    names = {field.encode_name for field in msgspec.structs.fields(model)}
    tables = (fields.IGNORED, fields.UNSUPPORTED, *OF_OTHERS.values(), *map(rows, SHARED))
    return frozenset(names.union(*tables))


def on_fields(body: dict[str, Any], model: type) -> list[str]:
    return fields.likely_mistakes(body, known(model))
