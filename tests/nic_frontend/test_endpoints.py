"""The small endpoints: tokens, versions, the document, and HEAD; and what is no endpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from harness import CHAT, COMPLETION, Frontend, Speak, StartBackend, StartFrontend, error_of
from limits import WAIT_S
from templates import HERMES
from tokenizers import Tokenizer

from nic_frontend.endpoints import Endpoints, root_of
from nic_frontend.observe import live
from ringbuffer.version import version

pytestmark = pytest.mark.usefixtures("kept_frontend")


def test_tokens_of_a_prompt(frontend: Frontend, model_dir: Path) -> None:
    tokens = Tokenizer.from_file(str(model_dir / "tokenizer.json")).encode("the quick fox")
    post = frontend.client.post
    found = post("/tokenize", json={"prompt": "the quick fox"}).json()
    assert found == {"count": len(tokens.ids), "max_model_len": 512, "tokens": tokens.ids, "token_strs": None}
    found = post("/tokenize", json={"prompt": "the quick fox", "return_token_strs": True}).json()
    assert found["token_strs"] == tokens.tokens
    assert post("/detokenize", json={"tokens": tokens.ids}).json() == {"prompt": "the quick fox"}
    assert post("/detokenize", json={"tokens": []}).json() == {"prompt": ""}


def test_tokens_of_messages(speak: Speak) -> None:
    frontend = speak(HERMES, "x")
    tool = {"type": "function", "function": {"name": "f"}}
    body = {"messages": CHAT["messages"], "tools": [tool]}
    found = frontend.client.post("/tokenize", json=body).json()
    frontend.client.post("/v1/chat/completions", json=body)
    assert found["tokens"] == frontend.backend.accepted[-1].prompt


def test_routers_are_told_the_tokens_that_a_request_would_have(speak: Speak) -> None:
    frontend = speak(HERMES, "x")
    post, accepted = frontend.client.post, frontend.backend.accepted
    texts = {"prompt": ["hello", "the quick fox"], "max_tokens": 1}
    rendered = post("/v1/completions/render", json=texts).json()
    chat = post("/v1/chat/completions/render", json=CHAT).json()
    assert not accepted
    post("/v1/completions", json=texts)
    post("/v1/chat/completions", json=CHAT)
    prompts = [request.prompt for request in accepted]
    assert sorted([*(one["token_ids"] for one in rendered), chat["token_ids"]]) == sorted(prompts)
    error_of(post("/v1/chat/completions/render", json={"messages": []}), 400)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "x", "messages": CHAT["messages"]}, "prompt"),
        ("/tokenize", {"prompt": 5}, "prompt"),
        ("/tokenize", {"prompt": "\ud800"}, "prompt"),
        ("/tokenize", {"messages": [{}]}, "messages[0].role"),
        ("/tokenize", {"messages": CHAT["messages"], "chat_template": "x"}, "chat_template"),
        (
            "/tokenize",
            {"messages": CHAT["messages"], "continue_final_message": True},
            "continue_final_message",
        ),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [600]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens[0]"),
        ("/detokenize", {"tokens": "x"}, "tokens"),
    ],
)
def test_bad_bodies(frontend: Frontend, path: str, body: dict[str, object], param: str) -> None:
    answer = frontend.client.post(
        path, content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert error_of(answer, 400)["param"] == param


def test_version_and_ping(frontend: Frontend) -> None:
    assert frontend.client.get("/version").json() == {"version": version()}
    assert frontend.client.get("/ping").json() == frontend.client.get("/health").json() == {"status": "ok"}


def test_head_wherever_get_is(frontend: Frontend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REUSE_S", WAIT_S)  # both see one state, however late the second comes
    for pattern, methods in Endpoints(frontend.service).routes.items():
        path = pattern.replace("{model}", "tiny").replace("{file}", "main.js")
        if "GET" not in methods:
            assert frontend.client.head(path).status_code == 405
            continue
        if "{response_id}" in path:  # nothing is stored there
            continue
        head, get = frontend.client.head(path), frontend.client.get(path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        if path not in ("/metrics", "/profile"):
            assert head.headers["content-length"] == str(len(get.content))
    answer = frontend.client.delete("/v1/models")
    assert error_of(answer, 405)["code"] == "method_not_allowed"
    assert answer.headers["allow"] == "GET, HEAD"


def test_the_document_lists_what_is_served(frontend: Frontend) -> None:
    document = frontend.client.get("/openapi.json").json()
    served = {
        (path, method.lower())
        for path, methods in Endpoints(frontend.service).routes.items()
        for method in methods
    }
    assert {(path, method) for path, methods in document["paths"].items() for method in methods} == served
    text = frontend.client.get("/openapi.json").text
    for name in re.findall(r'"#/components/schemas/(\w+)"', text):
        assert name in document["components"]["schemas"]
    page = frontend.client.get("/docs").text
    assert all(path in page for path in document["paths"])


def test_the_page_of_the_api_lists_every_endpoint(frontend: Frontend) -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    listed = {
        path
        for row in re.findall(r"^\| `(?:GET|POST|DELETE) .*", text, re.MULTILINE)
        for path in re.findall(r"`(?:GET |POST |DELETE )?(/[^`]*)`", row)
    }
    served = {
        path.replace("{model}", "NAME").replace("{file}", "NAME").replace("{response_id}", "ID")
        for path in Endpoints(frontend.service).routes
    }
    assert listed == served


def test_new_endpoints_need_the_key(start_backend: StartBackend, start_frontend: StartFrontend) -> None:
    frontend = start_frontend(start_backend(), api_key="secret")
    for path in ("/version", "/openapi.json", "/docs"):
        assert frontend.client.get(path).status_code == 401
    for path in ("/tokenize", "/detokenize", "/v1/responses"):
        assert frontend.client.post(path, json={}).status_code == 401
    assert frontend.client.get("/ping").status_code == 200


def test_unknown_routes_and_methods(frontend: Frontend) -> None:
    assert error_of(frontend.client.get("/nowhere"), 404)["code"] == "unknown_url"
    assert error_of(frontend.client.post("/v1/embeddings", json={}), 404)["code"] == "unknown_url"
    response = frontend.client.get("/v1/completions")
    assert error_of(response, 405)["code"] == "method_not_allowed"
    assert response.headers["allow"] == "POST"
    assert error_of(frontend.client.post("/health"), 405)["code"] == "method_not_allowed"


@pytest.mark.parametrize(
    ("directory", "root"),
    [
        ("/cache/hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de289a0", "Qwen/Qwen3-0.6B"),
        ("/cache/my--models/snapshots/c1899de289a0", "/cache/my--models/snapshots/c1899de289a0"),
        ("/srv/models/qwen3", "/srv/models/qwen3"),
    ],
)
def test_where_a_model_comes_from(directory: str, root: str) -> None:
    assert root_of(Path(directory)) == root


def test_an_empty_name_means_the_model_that_is_served(frontend: Frontend) -> None:
    answer = frontend.client.post("/v1/completions", json={**COMPLETION, "model": ""})
    assert answer.json()["model"] == "tiny"
