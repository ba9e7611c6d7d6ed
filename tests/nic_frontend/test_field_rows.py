"""A field is told once: what follows from its row (api/schema/rows.py)."""

from __future__ import annotations

from typing import Annotated, Any

import generate_fields
import pytest
from msgspec import Meta

from nic_frontend.api.notes import SHARED
from nic_frontend.api.schema.chat import ChatRequest
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import CompletionRequest, Generation
from nic_frontend.api.schema.messages import MessagesRequest
from nic_frontend.api.schema.responses import ResponsesRequest
from nic_frontend.api.schema.rows import Row, descriptor_values, names_of_model, refused, rows
from nic_frontend.errors import ApiError
from ringbuffer import abi

WARMTH = Row((3, 4), in_descriptor=True, of_model=True, written=lambda warmth: 2 * warmth)


class Warmer(Generation, kw_only=True):
    """As if a field had been added to those that requests have in common."""

    warmth: Annotated[int, Meta(ge=0, le=9), WARMTH] | None = None


def test_a_new_row_is_checked_meant_written_and_refused_elsewhere() -> None:
    assert descriptor_values(checked({"warmth": 5}, Warmer))["warmth"] == 10
    assert descriptor_values(checked({}, Warmer))["warmth"] == 6
    with pytest.raises(ApiError, match="'warmth' must be at most 9, it is 10") as told:
        checked({"warmth": 10}, Warmer)
    assert told.value.status == 400
    assert refused(MessagesRequest, (Warmer,))["warmth"] == (None, 3, 4)
    assert "warmth" not in refused(Warmer, (Warmer,))
    assert names_of_model(Warmer)[-1] == "warmth"


def test_rows_of_the_descriptor_are_fields_of_it_with_one_neutral_value() -> None:
    found = {name: row for name, row in rows(Generation).items() if row.in_descriptor}
    assert set(found) == {
        "temperature", "top_p", "min_p", "top_k", "repetition_penalty", "presence_penalty",
        "frequency_penalty", "priority",
    }  # fmt: skip
    assert set(found) <= set(abi.Descriptor.names or ())
    assert all(len(row.neutral) == 1 for row in found.values())


@pytest.mark.parametrize("model", [ChatRequest, CompletionRequest, ResponsesRequest, MessagesRequest])
def test_what_is_neutral_may_be_written(model: Any) -> None:
    """Where an endpoint has the field, the values with which it asks for nothing are values that it takes."""
    needed = {
        "messages": [{"role": "user", "content": "x"}], "prompt": "x", "input": "x", "max_tokens": 5,
    }  # fmt: skip
    body = {name: value for name, value in needed.items() if name in model.__struct_fields__}
    for name, row in rows(model).items():
        for value in row.neutral:
            if name != "stop" or value:  # an empty list of stops is taken, and a stop is never empty
                checked({**body, name: value}, model)


def test_what_one_endpoint_has_is_refused_where_it_is_missing() -> None:
    assert "echo" in refused(ResponsesRequest, SHARED)
    assert not refused(ChatRequest, SHARED)
    assert {"tools", "max_completion_tokens"} <= set(refused(CompletionRequest, SHARED))
    assert "temperature" not in refused(ResponsesRequest, SHARED)


def test_the_page_of_the_fields_is_what_the_models_say() -> None:
    """Else: scripts/generate_fields.py."""
    assert generate_fields.PAGE.read_text() == generate_fields.page()
