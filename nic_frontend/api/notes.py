"""What a request is told beside its answer."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from nic_frontend.api import fields


@functools.cache
def known(model: type) -> frozenset[str]:
    """The fields of a request that nobody has to be told about."""
    names = {field.encode_name for field in msgspec.structs.fields(model)}
    tables = (fields.UNSUPPORTED, fields.UNSUPPORTED_IN_CHAT, fields.UNSUPPORTED_IN_COMPLETIONS)
    return frozenset(names.union(fields.IGNORED, *tables))


def on_fields(body: dict[str, Any], model: type) -> list[str]:
    return fields.likely_mistakes(body, known(model))
