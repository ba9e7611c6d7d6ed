"""/openapi.json, made of the models by which requests are checked, and a page that shows it."""

from __future__ import annotations

import functools
import html
import json
import re
from typing import Any, NamedTuple

import msgspec

from nic_frontend.api.schema import answers
from nic_frontend.api.schema.chat import ChatRequest
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.schema.messages import CountRequest, MessagesRequest
from nic_frontend.api.schema.responses import ResponsesRequest
from nic_frontend.api.schema.tokens import DetokenizeRequest, TokenizeRequest

TEMPLATE = "#/components/schemas/{name}"
KEYS: list[dict[str, list[str]]] = [{}, {"bearer": []}, {"key": []}]

BAD_BODY = {
    400: "A field is wrong or not supported, or the prompt does not fit.",
    401: "The key is wrong.",
    404: "The model is another one.",
    408: "The body took too long.",
    413: "The body is too large.",
    415: "The body is no JSON, or encoded.",
}
BUSY = {
    429: "All slots are busy, or there is no memory for prompt and answer.",
    500: "The engine failed.",
    503: "The backend is not serving.",
}
KEY = {401: BAD_BODY[401]}
RESPONSE = "/v1/responses/{response_id}"
UNKNOWN_RESPONSE = {
    400: "This cannot be done with this response.",
    401: BAD_BODY[401],
    404: "There is no such response of this key.",
    503: "The store cannot be used.",
}
PAGES = (
    {"name": "after", "in": "query", "schema": {"type": "string"}},
    {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}},
    {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"]}},
)
SECONDS = {
    "name": "seconds",
    "in": "query",
    "description": "How long, at most 60; 2 by default.",
    "schema": {"type": "number"},
}
UNKNOWN_MODEL = {status: BAD_BODY[status] for status in (401, 404)}


class Operation(NamedTuple):
    summary: str
    request: type | None  # the model of its body
    answer: type | str  # a model, or a media type
    failures: dict[int, str]
    streams: bool = False
    queries: tuple[dict[str, Any], ...] = ()  # what the URL may ask for


def generating(summary: str, request: type, answer: type) -> Operation:
    return Operation(summary, request, answer, BAD_BODY | BUSY, True)


OPERATIONS: dict[str, Operation] = {  # by method and path
    "POST /v1/completions": generating("Completes prompts.", CompletionRequest, answers.Completion),
    "POST /v1/chat/completions": generating("Answers messages.", ChatRequest, answers.ChatCompletion),
    "POST /v1/responses": generating(
        "Answers input, and stores the answer where it may.", ResponsesRequest, answers.Response
    ),
    f"GET {RESPONSE}": Operation("A stored response.", None, answers.Response, UNKNOWN_RESPONSE),
    f"DELETE {RESPONSE}": Operation("Deletes one.", None, answers.DeletedResponse, UNKNOWN_RESPONSE),
    f"POST {RESPONSE}/cancel": Operation(
        "Ends one that is computed in the background.", None, answers.Response, UNKNOWN_RESPONSE
    ),
    f"GET {RESPONSE}/input_items": Operation(
        "What one was asked.", None, answers.InputItems, UNKNOWN_RESPONSE, queries=PAGES
    ),
    "POST /v1/messages": generating(
        "Answers messages, as Anthropic's API.", MessagesRequest, answers.Message
    ),
    "POST /v1/messages/count_tokens": Operation(
        "Counts the tokens of messages.", CountRequest, answers.TokenCount, BAD_BODY
    ),
    "POST /v1/completions/render": Operation(
        "The tokens of prompts.", CompletionRequest, "application/json", BAD_BODY
    ),
    "POST /v1/chat/completions/render": Operation(
        "The tokens of messages.", ChatRequest, "application/json", BAD_BODY
    ),
    "POST /tokenize": Operation("The tokens of a text.", TokenizeRequest, answers.Tokens, BAD_BODY),
    "POST /detokenize": Operation("The text of tokens.", DetokenizeRequest, answers.Text, BAD_BODY),
    "GET /v1/models": Operation("The model that is served.", None, answers.ModelList, KEY),
    "GET /v1/models/{model}": Operation("The model of this name.", None, answers.Model, UNKNOWN_MODEL),
    "GET /health": Operation("Whether requests are served.", None, answers.Status, {503: BUSY[503]}),
    "GET /ping": Operation("The same.", None, answers.Status, {503: BUSY[503]}),
    "GET /version": Operation("The version of this server.", None, answers.Version, KEY),
    "GET /metrics": Operation("Counters and histograms for Prometheus.", None, "text/plain", {}),
    "GET /": Operation("A page to chat with the model, and to watch the machine.", None, "text/html", {}),
    "GET /page/{file}": Operation(
        "A script or style of that page.", None, "text/javascript", {404: "There is no such file."}
    ),
    "GET /live": Operation(
        "What that page shows of the machine.", None, "application/json", KEY | {503: BUSY[503]}
    ),
    "GET /load": Operation("How much the server has to do.", None, "application/json", KEY),
    "GET /server_info": Operation("What is served, and with which options.", None, "application/json", KEY),
    "GET /profile": Operation(
        "The steps of the next seconds as a Chrome trace.",
        None,
        "application/json",
        KEY | {400: "There is no such time.", 409: "A trace is being taken."},
        queries=(SECONDS,),
    ),
    "GET /openapi.json": Operation("This document.", None, "application/json", KEY),
    "GET /docs": Operation("This document as a page.", None, "text/html", KEY),
}


@functools.cache
def document(version: str, root_path: str = "") -> dict[str, Any]:
    """OpenAPI 3.1, of a server that a proxy serves at `root_path`. Not to be changed."""
    models = {operation.request for operation in OPERATIONS.values() if operation.request}
    models |= {operation.answer for operation in OPERATIONS.values() if isinstance(operation.answer, type)}
    ordered = sorted(models | {answers.Error, answers.AnthropicError}, key=lambda model: model.__name__)
    _, schemas = msgspec.json.schema_components(ordered, ref_template=TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for name, operation in OPERATIONS.items():
        method, path = name.split(" ")
        paths.setdefault(path, {})[method.lower()] = _operation(path, operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "blink", "version": version, "description": "See docs/api.md."},
        "servers": [{"url": root_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
    }


def _operation(path: str, operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {"summary": operation.summary, "responses": _responses(path, operation)}
    if 401 in operation.failures:
        found["security"] = KEYS
    of_path = {"in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    parameters = [{"name": name, **of_path} for name in re.findall(r"{(\w+)}", path)]
    if parameters or operation.queries:
        found["parameters"] = [*parameters, *operation.queries]
    if operation.request is not None:
        content = {"application/json": {"schema": _ref(operation.request)}}
        found["requestBody"] = {"required": True, "content": content}
    return found


def _responses(path: str, operation: Operation) -> dict[str, Any]:
    if isinstance(operation.answer, str):
        content: dict[str, Any] = {operation.answer: {}}
    else:
        content = {"application/json": {"schema": _ref(operation.answer)}}
    if operation.streams:
        content["text/event-stream"] = {}
    error = answers.AnthropicError if path.startswith("/v1/messages") else answers.Error
    failed = {"application/json": {"schema": _ref(error)}}
    failures = {
        str(status): {"description": text, "content": failed} for status, text in operation.failures.items()
    }
    return {"200": {"description": "The answer.", "content": content}, **failures}


def _ref(model: type) -> dict[str, str]:
    return {"$ref": TEMPLATE.format(name=model.__name__)}


def page(document: dict[str, Any]) -> str:
    """Plain HTML that loads nothing from elsewhere."""
    parts = ["<!doctype html><meta charset=utf-8><title>blink</title>"]
    parts.append("<style>body{font-family:sans-serif;max-width:60em;margin:auto}pre{overflow:auto}</style>")
    parts.append(f"<h1>blink {html.escape(document['info']['version'])}</h1>")
    parts.append('<p>This page shows <a href="openapi.json">openapi.json</a>.</p>')
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            parts.append(
                f"<h2>{method.upper()} {html.escape(path)}</h2><p>{html.escape(operation['summary'])}</p>"
            )
            parts.append(_details("request", operation.get("requestBody")))
            parts.append(_details("answers", operation["responses"]))
    parts.append("<h2>Objects</h2>")
    parts += [_details(name, schema, name) for name, schema in document["components"]["schemas"].items()]
    return "".join(parts)


def _details(title: str, value: Any, anchor: str = "") -> str:
    if value is None:
        return ""
    shown = html.escape(json.dumps(value, indent=2, ensure_ascii=False))
    return f"<details id='{anchor}'><summary>{html.escape(title)}</summary><pre>{shown}</pre></details>"
