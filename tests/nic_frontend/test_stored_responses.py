"""Responses that are stored: continued, referred to, asked for, deleted, and computed in the background."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from fixtures import ring_of_its_own
from harness import Frontend, Speak, error_of, wait_until
from kept import Kept
from limits import WAIT_S
from mock_backend import MockBackend
from scripted_answers import say
from silence import silence_behind
from templates import HERMES, write_model_with
from tiny_model import build_tokenizer
from typed_sse import typed_events

from nic_frontend.api.schema import answers
from nic_frontend.api.schema.checked import checked
from nic_frontend.ring.request_tracker import RequestTracker
from nic_frontend.store.database import Database
from nic_frontend.store.records import NoRoom

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Rome"}}</tool_call>'
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
EVERYTHING = f"<think>Hm.</think>One moment.{CALL}"
# As HERMES, but it shows what was thought.
THINKING = HERMES.replace(
    "<|im_start|>{{ message.role }}\n",
    "<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}"
    "<think>{{ message.reasoning_content }}</think>{% endif %}",
)
Stored = Callable[..., Frontend]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kept]]:
    """Two frontends with one store, which each test finds as the one before has left it."""
    folder = tmp_path_factory.mktemp("stored")

    def start(number: int) -> Frontend:
        directory = write_model_with(folder / f"model{number}", THINKING)
        backend = MockBackend(ring_of_its_own(), directory, max_context=4096).start()
        return Frontend(backend, directory, store_responses=folder / "responses")

    found = [Kept(partial(start, number)) for number in range(2)]
    yield found
    for one in found:
        one.close()


@pytest.fixture
def stored(pair: list[Kept], speak: Speak, failed: Callable[[], bool], tmp_path: Path) -> Iterator[Stored]:
    """A frontend that stores responses, and says a text. Those with options have a store of their own."""
    left = list(pair)

    def start(text: str, **options: Any) -> Frontend:
        if options:
            return speak(THINKING, text, store_responses=tmp_path / "responses", **options)
        frontend = left.pop(0).use()
        frontend.backend.script = say(build_tokenizer().encode(text, add_special_tokens=False).ids)
        return frontend

    yield start
    for one in pair:
        if one.in_use:
            one.rest(failed())


def thought_of(size: int) -> dict[str, Any]:
    """An item of so many bytes, of which the prompt has nothing."""
    told = [{"type": "reasoning_text", "text": "x"}]
    return {"type": "reasoning", "content": told, "summary": [{"type": "summary_text", "text": "a" * size}]}


def post(frontend: Frontend, **body: Any) -> httpx.Response:
    answer = frontend.client.post("/v1/responses", json={"input": "hi", **body})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def get(frontend: Frontend, id: str, rest: str = "") -> Any:
    answer = frontend.client.get(f"/v1/responses/{id}{rest}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def ended(frontend: Frontend, id: str) -> Any:
    """The response, when it is over."""
    wait_until(lambda: get(frontend, id)["status"] not in ("queued", "in_progress"))
    return get(frontend, id)


def test_a_conversation_goes_on_by_its_id(stored: Stored) -> None:
    frontend = stored(EVERYTHING)
    first = post(frontend, tools=[TOOL], instructions="Be brief.", input="Weather?").json()
    assert first["store"] is True
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    second = post(frontend, tools=[TOOL], input=[result], previous_response_id=first["id"]).json()
    assert second["previous_response_id"] == first["id"]
    by_id = prompt(frontend)
    assert "Be brief" not in by_id, "instructions are those of one response"
    asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
    post(frontend, tools=[TOOL], input=[asked, *first["output"], result], store=False)
    assert prompt(frontend) == by_id, "as if the client had sent the items"
    assert "<think>Hm.</think>One moment." in by_id
    post(frontend, previous_response_id=second["id"], input="Thanks.")
    shown = prompt(frontend)
    assert shown.index("Weather?") < shown.index("rain") < shown.index("Thanks.")


def test_another_frontend_goes_on(stored: Stored) -> None:
    one, other = stored("It rains."), stored("It rains.")
    first = post(one, input="Weather?").json()
    post(other, previous_response_id=first["id"], input="Sure?")
    assert prompt(other).count("It rains.") == 1
    assert get(other, first["id"]) == first
    assert other.client.delete(f"/v1/responses/{first['id']}").json() == {
        "id": first["id"], "object": "response", "deleted": True,
    }  # fmt: skip
    error = error_of(one.client.get(f"/v1/responses/{first['id']}"), 404)
    assert error["message"] == f"Response with id '{first['id']}' not found."


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_answered_is_found_again(stored: Stored, stream: bool) -> None:
    frontend = stored(EVERYTHING)
    answer = post(frontend, tools=[TOOL], metadata={"a": "b"}, stream=stream)
    told = typed_events(answer)[-1]["response"] if stream else answer.json()
    found = get(frontend, told["id"])
    assert found == told
    assert found["metadata"] == {"a": "b"}
    checked(found, answers.Response)
    assert "x-blink-warning" not in answer.headers


def test_log_probabilities_are_told_once(stored: Stored) -> None:
    frontend = stored("It rains.")
    told = post(frontend, include=["message.output_text.logprobs"]).json()
    assert told["output"][0]["content"][0]["logprobs"]
    assert get(frontend, told["id"])["output"][0]["content"][0]["logprobs"] == []


def test_what_is_not_to_be_stored(stored: Stored) -> None:
    frontend = stored("It rains.")
    told = post(frontend, store=False).json()
    assert told["store"] is False
    assert frontend.client.get(f"/v1/responses/{told['id']}").status_code == 404
    error = error_of(
        frontend.client.post("/v1/responses", json={"input": "x", "previous_response_id": told["id"]}), 400
    )
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


def test_items_are_referred_to(stored: Stored) -> None:
    """As the AI SDK does by default."""
    frontend = stored(EVERYTHING)
    asked = {"role": "user", "content": "Weather?"}
    first = post(frontend, tools=[TOOL], input=[asked]).json()
    references = [{"type": "item_reference", "id": item["id"]} for item in first["output"]]
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "rain"}
    second = post(frontend, tools=[TOOL], input=[asked, *references, result]).json()
    shown = prompt(frontend)
    post(frontend, tools=[TOOL], input=[asked, *first["output"], result])
    assert prompt(frontend) == shown
    frontend.client.delete(f"/v1/responses/{first['id']}")
    post(frontend, previous_response_id=second["id"])
    assert "<think>Hm.</think>One moment." in prompt(frontend), "what was referred to is stored with it"
    frontend.client.delete(f"/v1/responses/{second['id']}")
    body = {"input": [asked, {"type": "item_reference", "id": "msg_x"}]}
    error = error_of(frontend.client.post("/v1/responses", json=body), 404)
    assert error["param"] == "input"
    assert error["message"].startswith("Item with id 'msg_x' not found.")


def test_input_items(stored: Stored) -> None:
    frontend = stored("x")
    items = [{"role": "user", "content": f"n{n}"} for n in range(3)]
    id = post(frontend, input=items).json()["id"]
    page = get(frontend, id, "/input_items?limit=2")
    checked(page, answers.InputItems)
    assert [item["content"][0]["text"] for item in page["data"]] == ["n2", "n1"]
    assert (page["first_id"], page["last_id"]) == tuple(item["id"] for item in page["data"])
    assert page["has_more"]
    page = get(frontend, id, f"/input_items?after={page['last_id']}")
    assert [item["content"][0]["text"] for item in page["data"]] == ["n0"]
    page = get(frontend, id, "/input_items?order=asc")
    assert [item["content"][0]["text"] for item in page["data"]] == ["n0", "n1", "n2"]
    for query, param in (("limit=0", "limit"), ("limit=x", "limit"), ("order=up", "order")):
        error = error_of(frontend.client.get(f"/v1/responses/{id}/input_items?{query}"), 400)
        assert error["param"] == param
    assert frontend.client.get(f"/v1/responses/{id}/input_items?after=other").status_code == 404


def test_pages_end_where_items_have_one_id(stored: Stored) -> None:
    frontend = stored("x")
    items = [{"role": "user", "content": f"n{n}", "id": "same"} for n in range(3)]
    first = post(frontend, input=items).json()["id"]
    found: list[str] = []
    page = get(frontend, first, "/input_items?order=asc&limit=1")
    while len(found) < 4:
        found += [item["content"][0]["text"] for item in page["data"]]
        if not page["has_more"]:
            break
        page = get(frontend, first, f"/input_items?order=asc&limit=1&after={page['last_id']}")
    assert found == ["n0", "n1", "n2"]
    reference = {"type": "item_reference", "id": "same"}
    inline = {"role": "user", "content": "mine", "id": "same"}
    second = post(frontend, input=[inline, reference]).json()["id"]
    ids = [item["id"] for item in get(frontend, second, "/input_items")["data"]]
    assert len(set(ids)) == 2
    error = error_of(frontend.client.post("/v1/responses", json={"input": [reference, reference]}), 400)
    assert error["message"].startswith("Duplicate item found with id 'same'")
    assert error["param"] == "input[1]"


def test_what_means_nothing_is_not_stored(stored: Stored) -> None:
    frontend = stored("x")
    part = {"type": "output_text", "text": "a", "annotations": [], "more": "b" * 1000}
    tool = {"type": "function", "name": "f", "parameters": {"default": 1.5}}
    body = {
        "input": [
            {"role": "assistant", "content": [part], "note": float("nan")},
            {"type": "additional_tools", "tools": [tool]},
            {"role": "user", "content": "b"},
        ]
    }
    answer = frontend.client.post(
        "/v1/responses", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 200, answer.text
    listed = frontend.client.get(f"/v1/responses/{answer.json()['id']}/input_items?order=asc").text
    said, tools, _ = json.loads(listed)["data"]
    assert said["content"] == [{"type": "output_text", "text": "a", "annotations": []}]
    assert "note" not in said
    assert tools["tools"] == [tool]


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_numbers_that_json_does_not_have_are_refused(stored: Stored, number: str) -> None:
    """Where they would come back in an answer, which many clients could not read then."""
    frontend = stored("x")
    for param, text in (
        ("tools", '"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {"a": @}}]'),
        ("text", '"input": "x", "text": {"more": @}'),
        (
            "input[0]",
            '"input": [{"type": "additional_tools", "tools": [{"a": @}]}, {"role": "user", "content": "x"}]',
        ),
    ):
        body = "{" + text.replace("@", number) + "}"
        answer = frontend.client.post(
            "/v1/responses", content=body, headers={"content-type": "application/json"}
        )
        error = error_of(answer, 400)
        assert error["param"] == param
        assert "a number that JSON does not have" in error["message"]


def test_a_key_does_not_find_what_is_anothers(stored: Stored, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text(
        '[[key]]\nname = "a"\nkey = "key-of-a-"\n[[key]]\nname = "b"\nkey = "key-of-b-"\n', encoding="utf-8"
    )
    frontend = stored(EVERYTHING, api_keys=keys)

    def ask(key: str, method: str, path: str, **body: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer key-of-{key}-"}
        return frontend.client.request(
            method, f"/v1/responses{path}", headers=headers, json=body if body else None
        )

    told = ask("a", "POST", "", input="hi", tools=[TOOL]).json()
    path = f"/{told['id']}"
    assert ask("a", "GET", path).json() == told
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        error_of(ask("b", method, path + rest), 404)
    body = {"input": "x", "previous_response_id": told["id"]}
    assert error_of(ask("b", "POST", "", **body), 400)["code"] == "previous_response_not_found"
    reference = {"type": "item_reference", "id": told["output"][0]["id"]}
    error_of(ask("b", "POST", "", input=[reference]), 404)
    assert frontend.client.get(f"/v1/responses{path}").status_code == 401
    assert ask("a", "DELETE", path).json()["deleted"]


def test_a_chain_whose_beginning_is_gone(stored: Stored) -> None:
    frontend = stored("x")
    first = post(frontend).json()["id"]
    second = post(frontend, previous_response_id=first).json()["id"]
    frontend.client.delete(f"/v1/responses/{first}")
    body = {"input": "x", "previous_response_id": second}
    error = error_of(frontend.client.post("/v1/responses", json=body), 400)
    assert error["code"] == "previous_response_not_found"
    assert first in error["message"]
    assert second in error["message"]


def test_a_conversation_is_as_long_as_a_body_may_be(stored: Stored) -> None:
    frontend = stored("x", max_body_bytes=4000)
    id = post(frontend, input="a" * 3000).json()["id"]
    post(frontend, previous_response_id=id, input="b")
    body = {"previous_response_id": id, "input": "b" * 3000}
    error = error_of(frontend.client.post("/v1/responses", json=body), 400)
    assert "4000 bytes" in error["message"]
    assert "--max-body" in error["message"]


def test_texts_that_utf_8_cannot_write_are_stored(stored: Stored) -> None:
    frontend = stored("x")
    items = [{"role": "user", "content": "Köln \u2028", "id": "\ud800", "status": "\ud800"}]
    body = json.dumps({"input": items, "metadata": {"a": "\ud800"}})
    json_type = {"content-type": "application/json"}
    told = frontend.client.post("/v1/responses", content=body, headers=json_type).json()
    (found,) = get(frontend, told["id"], "/input_items")["data"]
    assert found["content"] == [{"type": "input_text", "text": "Köln \u2028"}]
    assert (found["type"], found["status"]) == ("message", "\ud800")
    assert get(frontend, told["id"])["metadata"] == {"a": "\ud800"}
    post(frontend, previous_response_id=told["id"])
    assert "Köln" in prompt(frontend)
    body = json.dumps({"input": "x", "previous_response_id": "\ud800"})
    answer = frontend.client.post("/v1/responses", content=body, headers={"content-type": "application/json"})
    assert error_of(answer, 400)["param"] == "previous_response_id"


def test_in_the_background(stored: Stored) -> None:
    frontend = stored(EVERYTHING)
    frontend.backend.stalled.set()
    queued = post(frontend, background=True, tools=[TOOL]).json()
    checked(queued, answers.Response)
    assert (queued["status"], queued["background"], queued["output"]) == ("queued", True, [])
    assert get(frontend, queued["id"]) == queued
    body = {"input": "x", "previous_response_id": queued["id"]}
    assert "queued" in error_of(frontend.client.post("/v1/responses", json=body), 400)["message"]
    frontend.disconnect()
    frontend.backend.stalled.clear()
    found = ended(frontend, queued["id"])
    assert (found["status"], found["error"]) == ("completed", None)
    assert [item["type"] for item in found["output"]] == ["reasoning", "message", "function_call"]
    assert found["usage"]["output_tokens"] > 0
    post(frontend, previous_response_id=queued["id"])
    assert "One moment." in prompt(frontend)


def test_in_the_background_it_is_told_when_it_begins(stored: Stored) -> None:
    frontend = stored("It rains. " * 200)
    frontend.backend.step_s = 0.05
    id = post(frontend, background=True).json()["id"]
    wait_until(lambda: get(frontend, id)["status"] == "in_progress")


def test_it_begins_with_its_first_token(stored: Stored) -> None:
    """Though nobody is woken for so few."""
    frontend = stored("")
    with silence_behind(frontend.backend, build_tokenizer().encode("It", add_special_tokens=False).ids):
        id = post(frontend, background=True).json()["id"]
        wait_until(lambda: get(frontend, id)["status"] == "in_progress")
        frontend.client.post(f"/v1/responses/{id}/cancel")


def test_a_key_that_may_have_one_open_asks_for_it(stored: Stored, tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "a"\nkey = "key-of-a-"\nconcurrent = 1\n', encoding="utf-8")
    frontend = stored("It rains.", api_keys=keys)
    frontend.client.headers["authorization"] = "Bearer key-of-a-"
    frontend.backend.stalled.set()
    id = post(frontend, background=True).json()["id"]
    error_of(frontend.client.post("/v1/responses", json={"input": "x"}), 429)
    assert get(frontend, id)["status"] == "queued"
    frontend.backend.stalled.clear()
    assert ended(frontend, id)["status"] == "completed"


def test_what_is_cut_off_in_the_background(stored: Stored) -> None:
    frontend = stored("It rains now.")
    id = post(frontend, background=True, max_output_tokens=2).json()["id"]
    found = ended(frontend, id)
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


@pytest.mark.parametrize("how", ["cancel", "delete"])
def test_another_frontend_cancels(stored: Stored, how: str) -> None:
    one, other = stored("It rains. " * 200), stored("x")
    one.backend.stalled.set()  # so that it does not end by itself
    id = post(one, background=True).json()["id"]
    if how == "cancel":
        cancelled = other.client.post(f"/v1/responses/{id}/cancel").json()
        assert (cancelled["status"], cancelled["output"]) == ("cancelled", [])
        assert other.client.post(f"/v1/responses/{id}/cancel").json() == cancelled
    else:
        other.client.delete(f"/v1/responses/{id}")
    slots = one.service.tracker.slots
    wait_until(lambda: slots.n_free == slots.n_slots, what="the slot given back")
    if how == "cancel":
        assert get(one, id)["status"] == "cancelled"


def test_what_cannot_be_cancelled(stored: Stored) -> None:
    frontend = stored("x")
    id = post(frontend).json()["id"]
    error = error_of(frontend.client.post(f"/v1/responses/{id}/cancel"), 400)
    assert error["message"] == "Cannot cancel a synchronous response."
    id = post(frontend, background=True).json()["id"]
    ended(frontend, id)
    error = error_of(frontend.client.post(f"/v1/responses/{id}/cancel"), 400)
    assert "already completed" in error["message"]
    error_of(frontend.client.post("/v1/responses/resp_x/cancel"), 404)


def test_what_fails_in_the_background(stored: Stored) -> None:
    frontend = stored("It rains. " * 200, request_timeout_s=1.0)
    frontend.backend.step_s = 0.05
    id = post(frontend, background=True).json()["id"]
    found = ended(frontend, id)
    assert (found["status"], found["error"]["code"]) == ("failed", "request_timeout")


def test_what_gets_no_slot_is_refused_at_once(stored: Stored) -> None:
    frontend = stored("x", slot_wait_s=0.05)
    frontend.backend.stalled.set()
    slots = frontend.service.tracker.slots
    for _ in range(slots.n_slots):
        answer = frontend.client.post("/v1/responses", json={"input": "x", "background": True})
        if answer.status_code != 200:
            break
    else:
        answer = frontend.client.post("/v1/responses", json={"input": "x", "background": True})
    error_of(answer, 429)
    frontend.backend.stalled.clear()


def test_at_the_end_of_the_server_what_is_open_has_failed(stored: Stored) -> None:
    one = stored("It rains. " * 200, drain_timeout_s=0.5)
    other = stored("x", drain_timeout_s=0.5)
    one.backend.step_s = 0.05
    id = post(one, background=True).json()["id"]
    one.stop()
    found = get(other, id)
    assert (found["status"], found["error"]["code"]) == ("failed", "service_unavailable")


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"background": True, "store": False}, "background"),
        ({"background": True, "stream": True}, "stream"),
        ({"conversation": "conv_x"}, "conversation"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"previous_response_id": ""}, "previous_response_id"),
        ({"input": [{"type": "item_reference"}]}, "input[0].id"),
        ({"input": [{"role": "user", "content": "x", "id": 5}]}, "input[0].id"),
    ],
)
def test_what_is_refused(stored: Stored, changes: dict[str, Any], param: str) -> None:
    answer = stored("").client.post("/v1/responses", json={"input": "hi", **changes})
    assert error_of(answer, 400)["param"] == param


def test_streams_of_stored_responses_are_refused(stored: Stored) -> None:
    frontend = stored("x")
    id = post(frontend).json()["id"]
    answer = frontend.client.get(f"/v1/responses/{id}?stream=true&starting_after=3")
    assert error_of(answer, 400)["param"] == "stream"


def test_an_answer_outlives_its_store(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend = stored("It rains.")

    def fails(*_: Any) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(Database, "insert", fails)
    told = post(frontend).json()
    assert told["store"] is False
    assert told["output"][0]["content"][0]["text"] == "It rains."
    error = error_of(frontend.client.post("/v1/responses", json={"input": "x", "background": True}), 503)
    assert "disk is full" in error["message"]


def test_inputs_take_memory_until_there_is_a_slot(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend = stored("x", body_memory_bytes=80_000)
    bodies, tracker = frontend.service.bodies, frontend.service.tracker
    frontend.backend.stalled.set()
    large = [thought_of(60_000), {"role": "user", "content": "x"}]
    asked = [threading.Thread(target=post, args=(frontend,), kwargs={"input": large}) for _ in range(3)]
    for n_open, one in enumerate(asked[:2], 1):
        one.start()
        wait_until(partial(lambda n: tracker.n_open == n and bodies.held == 0, n_open))
    submit, may_go = RequestTracker.submit, threading.Event()

    async def waits(*asked: Any) -> None:
        while not may_go.is_set():
            await asyncio.sleep(0.01)
        await submit(*asked)

    monkeypatch.setattr(RequestTracker, "submit", waits)
    asked[2].start()
    wait_until(lambda: 40_000 < bodies.held < 50_000)
    error = error_of(frontend.client.post("/v1/responses", json={"input": large}), 503)
    assert "too large together" in error["message"]
    may_go.set()
    wait_until(lambda: tracker.n_open == 3 and bodies.held == 0)
    frontend.backend.stalled.clear()
    for one in asked:
        one.join(WAIT_S)


class Streaming:
    """A response whose stream has begun."""

    def __init__(self, frontend: Frontend) -> None:
        self._open = contextlib.ExitStack()
        asked = {"input": "hi", "stream": True}
        answer = self._open.enter_context(frontend.client.stream("POST", "/v1/responses", json=asked))
        self._lines = (line[6:] for line in answer.iter_lines() if line.startswith("data: "))
        self.id = str(json.loads(next(self._lines))["response"]["id"])

    def last(self) -> Any:
        with self._open:
            return json.loads(list(self._lines)[-1])

    def leave(self) -> None:
        self._open.close()


def test_a_stream_is_found_while_it_is_computed(stored: Stored) -> None:
    frontend = stored("It rains. " * 200)
    frontend.backend.step_s = 0.05
    stream = Streaming(frontend)
    found = get(frontend, stream.id)
    assert (found["status"], found["background"], found["output"]) == ("in_progress", False, [])
    error = error_of(frontend.client.post(f"/v1/responses/{stream.id}/cancel"), 400)
    assert error["message"] == "Cannot cancel a synchronous response."
    body = {"input": "x", "previous_response_id": stream.id}
    assert "in_progress" in error_of(frontend.client.post("/v1/responses", json=body), 400)["message"]
    stream.leave()
    wait_until(lambda: frontend.client.get(f"/v1/responses/{stream.id}").status_code == 404)


def test_what_is_deleted_while_it_is_computed_stays_away(stored: Stored) -> None:
    frontend = stored("It rains. " * 4)
    frontend.backend.stalled.set()
    stream = Streaming(frontend)
    assert frontend.client.delete(f"/v1/responses/{stream.id}").json()["deleted"]
    frontend.backend.stalled.clear()
    assert stream.last()["type"] == "response.completed"
    assert frontend.client.get(f"/v1/responses/{stream.id}").status_code == 404


def test_what_fails_while_its_client_waits_is_not_stored(stored: Stored) -> None:
    frontend = stored("It rains. " * 200, request_timeout_s=1.0)
    frontend.backend.step_s = 0.05
    stream = Streaming(frontend)
    assert stream.last()["type"] == "response.failed"
    wait_until(lambda: frontend.client.get(f"/v1/responses/{stream.id}").status_code == 404)


def test_what_gets_no_slot_drives_nobody_out(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend = stored("x", slot_wait_s=0.05)
    frontend.backend.stalled.set()
    asked = {"input": "x", "background": True}
    wait_until(lambda: frontend.client.post("/v1/responses", json=asked).status_code == 429)
    monkeypatch.setattr(Database, "insert", pytest.fail)
    for background in (True, False):
        body = {"input": "x", "background": background}
        error_of(frontend.client.post("/v1/responses", json=body), 429)
    frontend.backend.stalled.clear()


def test_an_answer_that_finds_no_room_is_not_stored(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    frontend = stored("It rains.")
    refused: list[str] = []

    def is_full(_: Database, id: str, *__: Any) -> None:
        refused.append(id)
        raise NoRoom

    monkeypatch.setattr(Database, "finish", is_full)
    told = post(frontend).json()
    assert told["store"] is False
    wait_until(lambda: frontend.client.get(f"/v1/responses/{told['id']}").status_code == 404)
    id = post(frontend, background=True).json()["id"]
    wait_until(lambda: id in refused)
    monkeypatch.undo()
    assert get(frontend, id)["status"] != "completed"


def test_what_a_client_does_not_take_is_counted(stored: Stored) -> None:
    size = 12 << 20
    frontend = stored("x", max_body_bytes=size + 10_000, body_memory_bytes=2 * size)
    bodies = frontend.service.bodies
    id = post(frontend, input=[thought_of(size), {"role": "user", "content": "x"}]).json()["id"]
    wait_until(lambda: bodies.held == 0)
    url = httpx.URL(frontend.url)
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.connect((url.host, url.port))
        slow.sendall(f"GET /v1/responses/{id}/input_items HTTP/1.1\r\nhost: {url.host}\r\n\r\n".encode())
        wait_until(lambda: bodies.held > size - (1 << 20))
        assert post(frontend).json()["status"] == "completed", "small ones are in nobody's way"
        more = frontend.client.get(f"/v1/responses/{id}/input_items")
        assert more.status_code == 503 or len(more.content) > size
        taken = 0
        while taken < size:
            taken += len(slow.recv(1 << 20))
    wait_until(lambda: bodies.held == 0)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({str(n): "x" for n in range(17)}, "at most 16 items"),
        ({"x" * 65: "x"}, "a name of 65 characters"),
        ({"x": "x" * 513}, "a value, of 'x', of 513 characters"),
    ],
)
def test_metadata_is_bounded(stored: Stored, metadata: dict[str, str], message: str) -> None:
    frontend = stored("x")
    most = {f"{n:064}": "x" * 512 for n in range(16)}
    assert post(frontend, metadata=most).json()["metadata"] == most
    error = error_of(frontend.client.post("/v1/responses", json={"input": "x", "metadata": metadata}), 400)
    assert message in error["message"]
    assert error["param"] == "metadata"


def test_without_a_store(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    for body in ({}, {"store": True}):
        answer = post(frontend, **body)
        assert answer.json()["store"] is False
        assert "--store-responses" in answer.headers["x-blink-warning"]
    assert "x-blink-warning" not in post(frontend, store=False).headers
    for name, value in (("background", True), ("previous_response_id", "resp_x")):
        error = error_of(frontend.client.post("/v1/responses", json={"input": "x", name: value}), 400)
        assert error["param"] == name
        assert "--store-responses" in error["message"]
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/input_items")):
        error = error_of(frontend.client.request(method, f"/v1/responses/resp_x{path}"), 404)
        assert "--store-responses" in error["message"]


def test_the_official_client(stored: Stored) -> None:
    frontend = stored("It rains. " * 20)
    with openai.OpenAI(
        base_url=f"{frontend.url}/v1", api_key="none", timeout=WAIT_S, max_retries=0,
        _strict_response_validation=True,
    ) as client:  # fmt: skip
        first = client.responses.create(model="tiny", input="Weather?")
        second = client.responses.create(model="tiny", input="Sure?", previous_response_id=first.id)
        assert client.responses.retrieve(second.id).previous_response_id == first.id
        given = [
            {"role": "developer", "content": "Be brief."},
            {"role": "assistant", "content": "Well."},
            {"type": "reasoning", "id": "rs_1", "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"role": "user", "content": [{"type": "input_text", "text": "Sure?"}]},
        ]
        various = client.responses.create(model="tiny", input=given)  # type: ignore[arg-type]
        listed = list(client.responses.input_items.list(various.id, limit=4, order="asc"))
        assert [item.type for item in listed] == [item.get("type", "message") for item in given]
        client.responses.delete(second.id)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(second.id)
        slow = client.responses.create(model="tiny", input="Weather?", background=True)
        while slow.status in ("queued", "in_progress"):
            time.sleep(0.01)
            slow = client.responses.retrieve(slow.id)
        assert slow.output_text == first.output_text
        frontend.backend.stalled.set()
        long = client.responses.create(model="tiny", input="Weather?", background=True)
        assert client.responses.cancel(long.id).status == "cancelled"
