"""No request holds the event loop up (F10): bodies as large as they may be, all of whose lists, maps, texts
and levels are at their limits, and the longest answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from fixtures import ring_of_its_own
from harness import Frontend
from mock_backend import MockBackend
from templates import HERMES, write_model_with
from turns import Turns

from nic_frontend.api.conversation import MOST_READ
from nic_frontend.http.json_text import MOST_DEPTH, MOST_PARTS, MOST_VALUES
from nic_frontend.service import Service

pytestmark = pytest.mark.slow

SIZE = 8 << 20
LONGEST_S = 0.1  # of a turn
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "x"}
# A path, and what makes a body of megabytes: when its test runs, as every worker collects all cases.
Case = tuple[str, Callable[[], Any]]


def at_limit(path: str, field: str, item: str, **others: Any) -> list[Case]:
    """Bodies whose `field` has as many of an item as may be: by the body's size, and by what it may hold. In
    the item's text, # is its number.
    """
    bound = {"max_output_tokens" if path == RESPONSES else "max_tokens": 1}
    head = json.dumps({**bound, **others})[:-1] + f',"{field}":['
    parts = item.count("{") + item.count("[") + item.count('":')
    by_count = MOST_VALUES // (1 + item.count(",")) - 100
    by_count = min(by_count, (MOST_PARTS - 100) // parts) if parts else by_count
    return [(path, partial(filled, head, item, most)) for most in (SIZE, by_count)]


def filled(head: str, item: str, most: int) -> str:
    """A body of `most` items, or of as many as fit into its size."""
    room = SIZE - len(head) - 2
    digits = len(str(room // len(item)))
    n = min(most, room // (len(item.replace("#", "0" * digits)) + 1))
    items = [item.replace("#", str(i).zfill(digits)) for i in range(n)] if "#" in item else [item] * n
    return head + ",".join(items) + "]}"


def nested(depth: int, opening: str = '{"a":', end: str = "1", closing: str = "}") -> str:
    return opening * depth + end + closing * depth


def members(n: int) -> dict[str, int]:
    return {f"temperature{i}": i for i in range(n)}


def called(arguments: str) -> dict[str, Any]:
    return json.loads(CALLS.replace(json.dumps("{}"), json.dumps(arguments)))


def text(piece: str) -> str:
    return piece * ((SIZE - 1000) // len(json.dumps(piece)[1:-1].encode()))


CALLS = '{"role":"assistant","tool_calls":[{"id":"#","function":{"name":"f#","arguments":"{}"}}]}'
ARGUMENTS = json.dumps(f'{{"a":[{"[]," * 1000}1]}}')
NUMBERS = json.dumps(f'{{"a":[{"7.5," * 1000}1]}}')
FUNCTION = '{"type":"function","function":{"name":"f#","parameters":{"type":"object"}}}'
THINKING = '{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"y"}]}'
CALL_ITEM = '{"type":"function_call","call_id":"#","name":"f","arguments":"{}"}'
LISTS = {
    "messages": at_limit(CHAT, "messages", '{"role":"user","content":"x"}'),
    "messages of nothing": at_limit(CHAT, "messages", "{}"),
    "arrays": at_limit(CHAT, "messages", "[]"),
    "parts": at_limit(
        CHAT,
        "messages",
        f'{{"role":"user","content":[{",".join(["{}"] * 30)}]}}'.replace("{}", '{"type":"text","text":"x"}'),
    ),
    "calls": at_limit(CHAT, "messages", CALLS),
    "function roles": at_limit(CHAT, "messages", f'{CALLS},{{"role":"function","name":"f#","content":""}}'),
    "arguments": at_limit(CHAT, "messages", CALLS.replace('"{}"', ARGUMENTS)),
    "numbers in arguments": at_limit(CHAT, "messages", CALLS.replace('"{}"', NUMBERS)),
    "tools": at_limit(CHAT, "tools", FUNCTION, messages=[USER]),
    "strict tools": at_limit(CHAT, "tools", FUNCTION.replace("{", '{"strict":true,', 1), messages=[USER]),
    "stops": at_limit(CHAT, "stop", '"#"', messages=[USER]),
    "bad words": at_limit(CHAT, "bad_words", '"x#"', messages=[USER]),
    "allowed tokens": at_limit(CHAT, "allowed_token_ids", "7", messages=[USER]),
    "allowed floats": at_limit(CHAT, "allowed_token_ids", "7.0", messages=[USER]),
    "stop tokens": at_limit(CHAT, "stop_token_ids", "7.0", messages=[USER]),
    "prompt": at_limit("/v1/completions", "prompt", "7"),
    "prompt to render": at_limit("/v1/completions/render", "prompt", "7"),
    "prompts of tokens": at_limit("/v1/completions", "prompt", "[7]"),
    "prompts of texts": at_limit("/v1/completions", "prompt", '"x"'),
    "prompt that is none": at_limit("/v1/completions", "prompt", "7.5"),
    "big numbers": at_limit("/v1/completions", "prompt", "9" * 1000),
    "many digits": at_limit("/v1/completions", "prompt", "0." + "9" * 200),
    "tokens": at_limit("/detokenize", "tokens", "7"),
    "tokens as floats": at_limit("/detokenize", "tokens", "7.0"),
    "messages to tokenize": at_limit("/tokenize", "messages", '{"role":"user","content":"x"}'),
    "messages to render": at_limit(CHAT + "/render", "messages", '{"role":"user","content":"x"}'),
    "items": at_limit(RESPONSES, "input", '{"role":"user","content":"x"}'),
    "calls as items": at_limit(RESPONSES, "input", CALL_ITEM),
    "tools of other kinds": at_limit(RESPONSES, "tools", '{"type":"web#","name":"w"}', input="x"),
    "tools of responses": at_limit(RESPONSES, "tools", '{"type":"function","name":"f#"}', input="x"),
    "includes": at_limit(RESPONSES, "include", '"x"', input="x"),
    "turns": at_limit(MESSAGES, "messages", '{"role":"user","content":"' + "x" * 60 + '"}'),
    "turns of an assistant": at_limit(MESSAGES, "messages", THINKING),
    "turns to count": at_limit(MESSAGES + "/count_tokens", "messages", '{"role":"user","content":"x"}'),
    "blocks of system": at_limit(MESSAGES, "system", '{"type":"text","text":"x"}', messages=[USER]),
    "tools of messages": at_limit(MESSAGES, "tools", '{"name":"f#","input_schema":{}}', messages=[USER]),
}
PAIR = {"messages": [USER], "max_tokens": 1}
MAPS: dict[str, Case] = {
    "unknown fields": (CHAT, lambda: {**PAIR, **members(MOST_PARTS - 20)}),
    "very many unknown fields": (CHAT, lambda: {**PAIR, **members(350_000)}),
    "biases": (CHAT, lambda: {**PAIR, "logit_bias": members(MOST_PARTS - 20)}),
    "template's options": (CHAT, lambda: {**PAIR, "chat_template_kwargs": members(MOST_PARTS - 20)}),
    "numbers in arguments": (
        CHAT,
        lambda: {**PAIR, "messages": [called(json.dumps({"a": [7.5] * MOST_READ}))]},
    ),
    "metadata": (
        RESPONSES,
        lambda: {
            "input": "x",
            "max_output_tokens": 1,
            "metadata": dict.fromkeys(members(MOST_PARTS - 20), "v"),
        },
    ),
    "schema": (
        CHAT,
        lambda: {
            **PAIR,
            "tools": [
                json.loads(
                    FUNCTION.replace("#", "").replace('{"type":"object"}', json.dumps(members(60_000)))
                )
            ],
        },
    ),
}
TEXTS: dict[str, Case] = {
    f"{kind} of {name}": (path, partial(lambda form, piece: form(text(piece)), form, piece))
    for name, piece in {
        "letters": "a",
        "controls": "\x01",
        "kanji": "漢",
        "surrogates": "\ud800",
        "ends": "\u2028",
    }.items()
    for kind, (path, form) in {
        "prompt": ("/v1/completions", lambda given: {"prompt": given, "max_tokens": 1, "echo": True}),
        "text to tokenize": ("/tokenize", lambda given: {"prompt": given, "return_token_strs": True}),
        "message": (CHAT, lambda given: {**PAIR, "messages": [{"role": "user", "content": given}]}),
        "instructions": (
            RESPONSES,
            lambda given: {"input": "x", "max_output_tokens": 1, "instructions": given, "stream": True},
        ),
        "system": (MESSAGES, lambda given: {**PAIR, "system": given}),
        "model": (CHAT, lambda given: {**PAIR, "model": given}),
        "salt": (CHAT, lambda given: {**PAIR, "cache_salt": given}),
        "name of a tool": (CHAT, lambda given: {**PAIR, "tools": [{"function": {"name": given}}]}),
        "bad word": (CHAT, lambda given: {**PAIR, "bad_words": [given]}),
        "unknown field": (CHAT, lambda given: {**PAIR, given: 1}),
        "option": (CHAT, lambda given: {**PAIR, "chat_template_kwargs": {given: 1}}),
    }.items()
}


def spoken(given: str) -> str:
    return f'{{"max_tokens":1,"messages":[{json.dumps(USER)}{given}'


PROMPT = {"prompt": "x", "max_tokens": 1}
TOOL = '],"tools":[{"function":{"name":"f","parameters":GIVEN}}]}'
HISTORY = ',{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":GIVEN}]},'
NESTED = {
    "options": (CHAT, lambda given: spoken(f'],"chat_template_kwargs":{given}}}')),
    "a schema": (
        CHAT,
        lambda given: spoken(f'],"tools":[{{"function":{{"name":"f","parameters":{given}}}}}]}}'),
    ),
    "arguments": (CHAT, lambda given: spoken(f",{CALLS.replace(json.dumps('{}'), json.dumps(given))}]}}")),
    "a call": (MESSAGES, lambda given: spoken(f"{HISTORY.replace('GIVEN', given)}{json.dumps(USER)}]}}")),
    "a tool": (
        RESPONSES,
        lambda given: f'{{"input":"x","max_output_tokens":1,"tools":[{{"name":"f","parameters":{given}}}]}}',
    ),
    "what is unknown": (
        "/v1/completions",
        lambda given: f'{{"prompt":"x","max_tokens":1,"unknown":{given}}}',
    ),
}
DEEP: dict[str, Case] = {
    f"{depth} levels of {name}": (path, partial(lambda form, depth: form(nested(depth)), form, depth))
    for depth in (MOST_DEPTH - 10, 300, 900, 100_000)
    for name, (path, form) in NESTED.items()
}


def content_of(body: Any) -> bytes:
    return (body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)).encode(
        errors="surrogatepass"
    )


@pytest.fixture(scope="module")
def turns() -> Turns:
    return Turns()


@pytest.fixture(scope="module")
def large(turns: Turns, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Frontend]:
    """A frontend of a model with tools, and with a context in which all of this fits."""
    directory = write_model_with(tmp_path_factory.mktemp("model"), HERMES)
    backend = MockBackend(
        ring_of_its_own(),
        directory,
        max_context=2 << 20,
        n_slots=128,
        prompt_heap=4 << 20,
        output_heap=1 << 20,
        step_s=0.001,
        device="cpu",  # whose heartbeat may stand still: this one takes its time with long prompts
    ).start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Service, "start", lambda service: turns.start(service))
        frontend = Frontend(backend, directory, max_body_bytes=SIZE + (1 << 20), body_memory_bytes=1 << 30)
    yield frontend
    frontend.stop()
    backend.stop()


def longest_turn(turns: Turns, ask: Callable[[], None]) -> float:
    """Of two times, the better: something that this request did not cause may have cost the first."""
    first_s = turns.longest_of(ask)
    return first_s if first_s < LONGEST_S else turns.longest_of(ask)


LISTED: dict[str, Case] = {
    f"{name} by {by}": case
    for name, both in LISTS.items()
    for by, case in zip(("size", "count"), both, strict=True)
}


@pytest.mark.parametrize("name", [*LISTED, *MAPS, *TEXTS, *DEEP])
def test_a_body_at_its_limits(large: Frontend, turns: Turns, name: str) -> None:
    path, make_body = {**LISTED, **MAPS, **TEXTS, **DEEP}[name]
    content = content_of(make_body())

    def ask() -> None:
        response = large.client.post(path, content=content, headers={"content-type": "application/json"})
        assert response.status_code < 500, response.text[:300]

    assert longest_turn(turns, ask) < LONGEST_S


def test_a_prompt_of_a_context_of_a_million(large: Frontend) -> None:
    """Beside all that a request may say of its answer."""
    others = {"logit_bias": dict.fromkeys(map(str, range(500)), 1), "temperature": 0.5, "seed": 1}
    body = {"prompt": [7] * (1 << 20), "max_tokens": 1, **others}
    response = large.client.post("/v1/completions/render", json=body)
    assert response.status_code == 200, response.text[:300]
    (rendered,) = response.json()
    assert rendered["token_ids"] == body["prompt"]


COMPLETION = {"prompt": [7] * 4000, "max_tokens": 1, "logprobs": 0}
TOP = {"logprobs": True, "top_logprobs": 20}
INCLUDE = {"include": ["message.output_text.logprobs"]}
LONG = {"max_tokens": 60, "ignore_eos": True}
ANSWERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": [USER], **LONG, **TOP, "n": 128}),
    "completion": ("/v1/completions", {"prompt": "x", **LONG, "logprobs": 20, "n": 128}),
    "response": (RESPONSES, {"input": "x", "max_output_tokens": 3000, "top_logprobs": 20, **INCLUDE}),
    "tools": (CHAT, {"messages": [USER], **LONG, **TOP, "n": 128, "tools": [{"function": {"name": "f"}}]}),
    "echo": ("/v1/completions", {**COMPLETION, "echo": True, "logprobs": 20}),
    "echo of many": ("/v1/completions", {**COMPLETION, "prompt": [7] * 40_000, "echo": True}),
    "prompt": ("/v1/completions", {**COMPLETION, "prompt_logprobs": 20}),
    "ids": ("/v1/completions", {**COMPLETION, "n": 128, "return_token_ids": True}),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "stream"),
    [(name, stream) for name in ANSWERS for stream in (False, True) if not (stream and name == "prompt")],
)
def test_a_long_answer(large: Frontend, turns: Turns, name: str, stream: bool) -> None:
    path, body = ANSWERS[name]

    def ask() -> None:
        with large.client.stream("POST", path, json={**body, "stream": stream}) as response:
            assert response.status_code == 200
            assert any(response.iter_bytes())

    assert longest_turn(turns, ask) < LONGEST_S
