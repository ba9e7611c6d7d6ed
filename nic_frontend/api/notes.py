"""What a request is told beside its answer."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from nic_frontend.api import fields

TABLES = (
    fields.UNSUPPORTED,
    fields.UNSUPPORTED_IN_CHAT,
    fields.UNSUPPORTED_IN_COMPLETIONS,
    fields.UNSUPPORTED_IN_BLOCKS,
    fields.UNSUPPORTED_IN_RESPONSES,
    fields.UNSUPPORTED_IN_MESSAGES,
)


@functools.cache
def known(model: type) -> frozenset[str]:
    """The fields of a request that nobody has to be told about."""
    names = {field.encode_name for field in msgspec.structs.fields(model)}
    return frozenset(names.union(fields.IGNORED, *TABLES))


def on_fields(body: dict[str, Any], model: type) -> list[str]:
    return fields.likely_mistakes(body, known(model))
