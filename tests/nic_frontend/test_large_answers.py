"""What a text of JSON may hold, and answers that are made in pieces (F10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, error_of
from known_work import cpu_s, least_cpu_s

from nic_frontend.api.constraint import chosen
from nic_frontend.api.conversation import MOST_READ, for_template
from nic_frontend.api.recall import check_numbers
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.schema.messages import CountRequest
from nic_frontend.api.schema.tokens import DetokenizeRequest
from nic_frontend.api.turns import messages_of
from nic_frontend.errors import ApiError
from nic_frontend.grammar.calls import Function
from nic_frontend.http.json_text import MOST_DEPTH, MOST_DIGITS, MOST_PARTS, MOST_TEXTS, MOST_VALUES, shape_of
from nic_frontend.http.long_json import BATCH, PIECE, Batches, LongText, pieces

USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("", (0, 0, 0, 0, 0)),
        ("[]", (1, 0, 0, 1, 0)),
        ('{"a": [1, 2, {}], "b": ","}', (5, 3, 3, 3, 1)),
        (r'["\\", "[{:,", "\"[", "漢,"]', (1, 4, 3, 1, 0)),
        ('["', (1, 1, 0, 1, 0)),
        ('["\\', (1, 1, 0, 1, 0)),
        ("[-1.5e3 ,true]", (1, 0, 1, 1, 6)),
        ("]]}}[", (1, 0, 0, 1, 0)),
    ],
)
def test_what_a_text_holds(text: str, shape: tuple[int, int, int, int, int]) -> None:
    assert shape_of(text.encode()) == shape


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (b"[" + b"[]," * MOST_PARTS + b"1]", "objects, arrays"),
        (b"{" + b",".join(b'"%d":1' % i for i in range(MOST_PARTS)) + b"}", "objects, arrays"),
        (b"[" + b'"",' * MOST_TEXTS + b"1]", "texts and names"),
        (b"[" + b"1," * (MOST_VALUES + 1) + b"1]", "values"),
        (b"9" * (MOST_DIGITS + 1), "a number of"),
        (b"[" * MOST_DEPTH + b"]" * MOST_DEPTH, f"may nest {MOST_DEPTH}"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, f"may nest {MOST_DEPTH}"),
    ],
    ids=["arrays", "members", "texts", "values", "digits", "levels", "very many levels"],
)
def test_a_body_that_holds_too_much(kept_frontend: Frontend, more: bytes, told: str) -> None:
    content = b'{"prompt": "x", "max_tokens": 1, "metadata": ' + more + b"}"
    response = kept_frontend.client.post(
        "/v1/completions", content=content, headers={"content-type": "application/json"}
    )
    assert told in error_of(response, 400)["message"]


def test_a_body_in_another_encoding(kept_frontend: Frontend) -> None:
    """In it, what ends a text cannot be told from what a letter is made of."""
    content = json.dumps(COMPLETION).encode("utf-16")
    response = kept_frontend.client.post(
        "/v1/completions", content=content, headers={"content-type": "application/json"}
    )
    assert "UTF-8" in error_of(response, 400)["message"]


def nested(depth: int) -> Any:
    return json.loads('{"a":' * depth + "1" + "}" * depth)


@pytest.mark.parametrize("depth", [MOST_DEPTH - 10, 450, 900])
def test_arguments_that_nest(kept_frontend: Frontend, depth: int) -> None:
    """A model may have written them, so the conversation goes on."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": json.dumps(nested(depth))}}
    messages = [USER, {"role": "assistant", "content": "", "tool_calls": [call]}, USER]
    response = kept_frontend.client.post("/v1/chat/completions", json={**CHAT, "messages": messages})
    assert response.status_code in (200, 400)  # this model's template knows no calls
    (shown,) = asyncio.run(for_template(messages))[1]["tool_calls"]
    assert ("INVALID_JSON" in shown["function"]["arguments"]) == (depth > MOST_DEPTH)


@pytest.mark.parametrize("most", [[[]] * (MOST_PARTS // 8), [7] * (MOST_READ // 8)], ids=["parts", "values"])
def test_arguments_that_hold_too_much(most: list[Any]) -> None:
    """All of them together: they are JSON in a body that is counted without them."""
    arguments = json.dumps({"a": most})
    calls = [{"id": "a", "function": {"name": "f", "arguments": arguments}}] * 9
    with pytest.raises(ApiError, match="arguments of the calls"):
        asyncio.run(for_template([{"role": "assistant", "tool_calls": calls}]))
    assert asyncio.run(for_template([{"role": "assistant", "tool_calls": calls[:6]}]))


def test_numbers_with_a_fraction_cost_one_more_look() -> None:
    """Not one for each."""
    tokens = [7.0] * 20_000
    assert least_cpu_s(lambda: checked({"tokens": tokens}, DetokenizeRequest), 0.5) < 0.5
    body: dict[str, Any] = {"prompt": "x", "n": 2.0, "max_tokens": 3.0, "stop_token_ids": [4.0, 5]}
    request = checked(body, CompletionRequest)
    assert (request.n, request.max_tokens, request.stop_token_ids) == (2, 3, [4, 5])
    with pytest.raises(ApiError, match=r"'tokens\[1\]' must be an integer"):
        checked({"tokens": [1.0, 1.5]}, DetokenizeRequest)


def test_tools_are_chosen_at_once() -> None:
    """However many the choice names."""
    tools = [Function(f"{i}", None, False) for i in range(10_000)]

    def best_s(names: list[str]) -> float:
        return min(cpu_s(lambda: chosen(tools, "required", names, False, None)) for _ in range(5))

    assert best_s([f"{i}" for i in range(9_872, 10_000)]) < 3 * best_s(["9999"])


def test_results_find_their_calls_at_once() -> None:
    calls = [{"id": f"{i}", "function": {"name": "f", "arguments": ""}} for i in range(9000)]
    results = [{"role": "function", "name": "f", "content": ""}] * 9000
    shown: list[Any] = []
    messages = [{"role": "assistant", "tool_calls": calls}, *results]
    took_s = least_cpu_s(lambda: shown.extend(asyncio.run(for_template(messages))), 1.0)
    assert shown[-1]["tool_call_id"] == "8999"
    assert took_s < 1


async def turns_beside(work: Coroutine[Any, Any, Any]) -> int:
    """How often another task has its turn until the work is done."""
    task, n = asyncio.create_task(work), 0
    while not task.done():
        await asyncio.sleep(0)
        n += 1
    await task
    return n


def test_others_have_their_turn_while_a_conversation_is_read() -> None:
    calls = [{"id": f"{i}", "function": {"name": "f", "arguments": '{"a": 1}'}} for i in range(11_000)]
    short = [{"role": "assistant", "tool_calls": calls}]
    assert asyncio.run(turns_beside(for_template(short))) >= 5
    assert asyncio.run(turns_beside(for_template([{"role": "user", "content": "x"}] * 11_000))) >= 5
    for values in ([7] * 600_000, [[]] * 600_000):
        assert asyncio.run(turns_beside(check_numbers(values, "tools"))) >= 5


def test_turns_in_a_row_are_joined_at_once() -> None:
    turns = [{"role": "user", "content": "x" * 300}] * 20_000
    request = checked({"messages": turns}, CountRequest)
    shown: list[Any] = []
    took_s = least_cpu_s(lambda: shown.extend(messages_of(request)), 0.5)
    assert len(shown[0]["content"]) == 301 * 20_000 - 1
    assert took_s < 0.5


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_json_in_pieces_is_the_same(separators: tuple[str, str]) -> None:
    write = partial(json.dumps, separators=separators, ensure_ascii=False)
    rows = [[], [1, 2], [{"a": "漢"}], []]
    text = '"\\\ud800' * BATCH
    long = {
        "a": Batches(lambda: rows),
        "b": [LongText(text), Batches(list)],
        "c": {"d": Batches(lambda: rows)},
    }
    flat = [1, 2, {"a": "漢"}]
    found = list(pieces(long, write))
    assert "".join(found) == write({"a": flat, "b": [text, []], "c": {"d": flat}})
    assert max(map(len, found)) < 4 * BATCH


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 20}),
        ("/v1/completions", {**COMPLETION, "logprobs": 20}),
    ],
)
def test_a_long_answer_goes_out_in_pieces(kept_frontend: Frontend, path: str, body: dict[str, Any]) -> None:
    """What was made is sent before the rest is."""
    asked = {**body, "n": 8, "max_tokens": 100, "ignore_eos": True}
    with kept_frontend.client.stream("POST", path, json=asked) as response:
        assert response.headers.get("transfer-encoding") == "chunked"
        parts = list(response.iter_raw())
    content = b"".join(parts)
    assert len(content) > 4 * PIECE
    for choice in json.loads(content)["choices"]:
        told = choice["logprobs"]
        assert len(told["content"] if "content" in told else told["top_logprobs"]) == 100


def test_a_warning_of_a_long_name(kept_frontend: Frontend) -> None:
    body = {**CHAT, "chat_template_kwargs": {"é" * 1_000_000: 1}}
    response = kept_frontend.client.post("/v1/chat/completions", json=body)
    assert len(response.headers["x-blink-warning"]) == 1000


def test_the_tokens_of_a_long_text(kept_frontend: Frontend) -> None:
    body = {"prompt": "x y" * BATCH, "return_token_strs": True}
    found = kept_frontend.client.post("/tokenize", json=body).json()
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"]) > BATCH
    back = kept_frontend.client.post("/detokenize", json={"tokens": found["tokens"]}).json()
    assert back == {"prompt": body["prompt"]}
