"""Answers of a form that a client asks for, on the GPU: many schemas at once, also without the backend."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from process_state import stop

pytest.importorskip("uvicorn", reason="the frontend needs uvicorn")
pytest.importorskip("httpx", reason="needs an HTTP client")
pytest.importorskip("jsonschema", reason="it judges the answers")
import httpx
import jsonschema
from http_server import serve_http
from test_http import backend_pid

WORD = {"type": "string", "maxLength": 8}
KINDS: list[dict[str, Any]] = [
    WORD,
    {"type": "integer", "minimum": 0, "maximum": 150},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"enum": ["red", "green", None]},
    {"type": "array", "items": WORD, "maxItems": 3},
    {"type": "string", "format": "date"},
    {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"inner": WORD}, "required": ["inner"]}]},
]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with serve_http() as url:
        yield url


def schema(i: int) -> dict[str, Any]:
    properties = {f"field_{i}_{k}": KINDS[(i + k) % len(KINDS)] for k in range(4)}
    return {"type": "object", "properties": properties, "required": list(properties)}


def ask(url: str, **changes: Any) -> str:
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_tokens": 400, **changes}
    answer = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=120).json()
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop", answer
    return str(choice["message"]["content"])


def check_schemas(url: str) -> None:
    """64 different ones in the same steps, beside answers without a form."""

    def held(i: int) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(i)}}
        text = ask(url, seed=i, response_format=form)
        jsonschema.validate(json.loads(text), schema(i), format_checker=jsonschema.FormatChecker())

    def said(_: int) -> str:
        messages = [{"role": "user", "content": "Count from 1 to 5."}]
        return ask(url, messages=messages, temperature=0)

    alone = said(0)
    with ThreadPoolExecutor(80) as threads:
        formed, others = threads.map(held, range(64)), threads.map(said, range(16))
        list(formed)
        assert set(others) == {alone}


def test_64_schemas_at_once(server: str) -> None:
    check_schemas(server)


def test_other_forms(server: str) -> None:
    for seed in range(8):
        assert re.fullmatch("[A-Z]{3}-[0-9]{4}", ask(server, seed=seed, guided_regex="[A-Z]{3}-[0-9]{4}"))
        assert ask(server, seed=seed, guided_choice=["yes", "no", "später"]) in ("yes", "no", "später")
        nested = ask(server, seed=seed, guided_grammar='root ::= "(" root ")" | [0-9]')
        assert re.fullmatch(r"\(*[0-9]\)*", nested)
        assert nested.count("(") == nested.count(")")


def test_with_the_backend_stopped(server: str) -> None:
    """No host process of the backend takes part in holding an answer to its form."""
    pid = backend_pid(server)
    stop(pid)
    try:
        check_schemas(server)
    finally:
        os.kill(pid, signal.SIGCONT)
