"""What a response is answered from: the conversation that it continues, the stored items that it refers to,
the thoughts that it brings sealed, and the items that are its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from nic_frontend.api.items import check_items
from nic_frontend.api.memory import FLAG, Memory
from nic_frontend.api.schema.responses import ID, InputItem, ReasoningText, ResponsesRequest
from nic_frontend.api.slices import Slices
from nic_frontend.errors import ApiError, bad_request
from nic_frontend.http.json_text import TooMuch, read_json
from nic_frontend.store.records import AncestorGone, Item, NotContinued, TooLong, Unknown
from nic_frontend.store.seal import NotOpened
from ringbuffer.model_file import shown

PREFIXES = {"message": "msg_", "function_call": "fc_", "function_call_output": "fco_", "reasoning": "rs_"}
NUMBERS = 100_000  # values and containers that are looked at before other calls have their turn
SLICE = 1 << 18  # bytes that are written likewise
PREVIOUS = "previous_response_id"


@dataclass(frozen=True)
class Recalled:
    items: list[InputItem]  # of the whole conversation
    own: list[Item] = field(default_factory=list)  # the request's, as they are stored; none where nothing is


def new_id(kind: str) -> str:
    """Of an item of this type."""
    return PREFIXES.get(kind, "item_") + secrets.token_hex(24)


def is_id(text: str | None) -> bool:
    """Whether items of this id can be found again; clients may have chosen any."""
    return text is not None and re.search(ID, text) is not None


def is_stored(request: ResponsesRequest, memory: Memory) -> bool:
    return memory.store is not None and request.store is not False


def check_memory(request: ResponsesRequest, memory: Memory) -> None:
    """Raises ApiError 400 where a request asks for what was not stored, or is not going to be."""
    if memory.store is None and request.previous_response_id is not None:
        raise _needs_store(PREVIOUS, "send the whole conversation, as clients do with 'store': false")
    if memory.store is None and request.background:
        raise _needs_store("background", "wait for the answer")
    if request.background and request.store is False:
        raise bad_request("'background' needs 'store': true", "background", "invalid_value")
    if request.background and request.stream:
        raise bad_request(
            "'stream' is not supported together with 'background': poll GET /v1/responses/ID",
            "stream",
            "unsupported_parameter",
        )


def _needs_store(name: str, instead: str) -> ApiError:
    return bad_request(
        f"'{name}' needs stored responses, and this server stores none: start it with {FLAG}, or {instead}",
        name,
        "unsupported_parameter",
    )


async def recall(request: ResponsesRequest, memory: Memory) -> Recalled:
    """Raises ApiError 400 or 404 where something is not there, belongs to somebody else, or is too much."""
    text = request.input
    items = [InputItem(role="user", content=text)] if isinstance(text, str) else text
    check_items(items)
    _open_sealed(items, memory)
    await asyncio.sleep(0)  # other calls' turn, as behind each step: there may be many items
    references = _references(items)
    found = await _referred(references, memory)
    if not (is_stored(request, memory) or request.previous_response_id or references):
        return Recalled(items)
    own = await _written(items, found)
    earlier = await _history(request.previous_response_id, memory) if request.previous_response_id else []
    if earlier or references:
        items = await _read([*earlier, *(item.content for item in own)], memory)
    return Recalled(items, own)


def _open_sealed(items: Sequence[InputItem], memory: Memory) -> None:
    """Gives the items that brought what was thought sealed the text of it."""
    for i, item in enumerate(items):
        if item.type != "reasoning" or item.encrypted_content is None:
            continue
        try:
            item.content = [ReasoningText(memory.opened(item.encrypted_content))]
        except NotOpened as error:
            where = f"input[{i}].encrypted_content"
            raise bad_request(f"'{where}' {error}; leave the item out", where, "invalid_value") from None


def _references(items: Sequence[InputItem]) -> dict[str, int]:
    """The ids of stored items that the input refers to, and where. Raises ApiError 400, as OpenAI does, for
    one that comes twice: an id names one item of a response.
    """
    places: dict[str, int] = {}
    for i, item in enumerate(items):
        if item.type != "item_reference":
            continue
        first = places.setdefault(str(item.id), i)
        if first != i:
            raise bad_request(
                f"Duplicate item found with id {shown(item.id)}, in 'input[{first}]' and 'input[{i}]'. "
                "Remove duplicate items from your input and try again.",
                f"input[{i}]",
                "invalid_value",
            )
    return places


async def _referred(references: dict[str, int], memory: Memory) -> dict[str, bytes]:
    """The stored items of these ids, which stand with their places in the input."""
    if not references:
        return {}
    if memory.store is None:
        where = f"input[{min(references.values())}]"
        raise bad_request(
            f"'{where}' refers to a stored item, and this server stores none: send the item itself, as "
            f"clients do with 'store': false, or start the server with {FLAG}",
            where,
            "unsupported_parameter",
        )
    try:
        for id in references:
            if not is_id(id):
                raise Unknown(id)
        return await memory.store.items(list(references), memory.most_bytes)
    except Unknown as error:
        raise ApiError(
            404,
            f"Item with id {shown(error.id)} not found. Items are stored with their response, unless its "
            "'store' is false, until it is deleted or makes room for others: send the item itself",
            param="input",
        ) from None
    except TooLong:
        raise _too_long("the items that 'input' refers to", "input", memory) from None


async def _history(id: str, memory: Memory) -> list[bytes]:
    """All items of the response of this id, and of those that it continues."""
    assert memory.store is not None
    code = "previous_response_not_found"
    try:
        return await memory.store.history(id, memory.most_bytes)
    except AncestorGone as error:
        raise bad_request(
            f"Previous response with id {shown(error.id)} not found, which {shown(id)} continues: it was "
            "deleted, or has made room for others. Send the conversation itself",
            PREVIOUS,
            code,
        ) from None
    except Unknown:
        raise bad_request(f"Previous response with id {shown(id)} not found.", PREVIOUS, code) from None
    except NotContinued as error:
        raise bad_request(
            f"the response {shown(id)} cannot be continued: its status is {error.status}",
            PREVIOUS,
            "invalid_value",
        ) from None
    except TooLong:
        raise _too_long(f"the conversation that '{PREVIOUS}' continues", PREVIOUS, memory) from None


def _too_long(what: str, param: str, memory: Memory) -> ApiError:
    return bad_request(
        f"{what} has more than {memory.most_bytes} bytes, which is as long as a body may be (--max-body)",
        param,
        "invalid_value",
    )


async def _written(given: Sequence[InputItem], found: dict[str, bytes]) -> list[Item]:
    """The request's items as they are stored: with an id of their own each, and what was referred to."""
    items, taken, slices = list[Item](), set(found), Slices(SLICE)
    for i, item in enumerate(given):
        id = item.id
        if item.type == "item_reference":
            assert id is not None
            items.append(Item(id, found[id]))
            continue
        if id is None or not is_id(id) or id in taken:
            id = new_id(item.type)
        taken.add(id)
        items.append(Item(id, as_json(_complete(item, id), f"input[{i}]")))
        await slices.did(len(items[-1].content))
    return items


def _complete(item: InputItem, id: str) -> dict[str, Any]:
    """An input item as clients find it again: with what they may leave out when they send it, and without
    members that mean nothing here, which could be of any size.
    """
    whole = {name: value for name, value in msgspec.to_builtins(item).items() if value is not None}
    whole |= {"id": id, "status": item.status or "completed"}
    if item.type == "reasoning":
        whole.setdefault("summary", [])
    if item.type == "message":
        if isinstance(item.content, str):
            kind = "output_text" if item.role == "assistant" else "input_text"
            whole["content"] = [{"type": kind, "text": item.content}]
        for part in whole["content"]:
            if part["type"] == "output_text":
                part["annotations"] = []
    return whole


async def check_numbers(value: Any, where: str) -> None:
    """Raises ApiError 400 for a number that JSON cannot write, however deep. Others have turns: a tool may
    have a million numbers."""
    waiting, slices = [[value]], Slices(NUMBERS)
    while waiting:
        values = waiting.pop()
        await slices.did(1)
        for start in range(0, len(values), NUMBERS):
            part = values[start : start + NUMBERS]
            for inner in part:
                if isinstance(inner, float):
                    if not math.isfinite(inner):
                        raise no_json(where)
                elif isinstance(inner, dict):
                    waiting.append([*inner.values()])
                elif isinstance(inner, list):
                    waiting.append(inner)
            await slices.did(len(part))


def no_json(where: str) -> ApiError:
    return bad_request(
        f"'{where}' has a number that JSON does not have: NaN, or one that is too large for a double",
        where,
        "invalid_value",
    )


def as_json(value: Any, where: str) -> bytes:
    """A lone surrogate that came with the request becomes a JSON escape again. Raises ApiError 400 for a
    number that JSON cannot write.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise no_json(where) from None
    return text.encode(errors="backslashreplace")


async def _read(contents: list[bytes], memory: Memory) -> list[InputItem]:
    """A conversation may have as much as a body that brings all of it."""
    size = sum(map(len, contents))
    if size > memory.most_bytes:
        raise _too_long("the whole conversation", "input", memory)
    memory.hold(size)
    try:
        found = read_json(b"[" + b",".join(contents) + b"]")
    except TooMuch as error:
        raise bad_request(f"the whole conversation {error}", "input", "invalid_value") from None
    await asyncio.sleep(0)
    return msgspec.convert(found, list[InputItem])
