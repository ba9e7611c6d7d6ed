"""Several names of a model, and a server behind a proxy's path."""

from __future__ import annotations

import pytest
from harness import CHAT, COMPLETION, StartBackend, StartFrontend, error_of

from blink.errors import CommandError
from blink.flags import root_path
from blink.frontend import check_root_path

ALIASES = ("gpt-4o", "claude-sonnet-5")


def test_a_model_answers_to_all_of_its_names(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    client = start_frontend(start_backend(), served_model_name="own", model_aliases=ALIASES).client
    models = client.get("/v1/models").json()["data"]
    assert [model["id"] for model in models] == ["own", *ALIASES]
    for name in ("own", *ALIASES):
        assert client.get(f"/v1/models/{name}").json()["id"] == name
        answer = client.post("/v1/completions", json=COMPLETION | {"model": name})
        assert answer.json()["model"] == "own"  # as other servers answer: by the first name
    message = error_of(client.post("/v1/completions", json=COMPLETION | {"model": "other"}), 404)["message"]
    assert message == "the model 'other' does not exist; this server has 'own', 'gpt-4o', 'claude-sonnet-5'"
    body = CHAT | {"model": ALIASES[1], "max_tokens": 2}
    assert client.post("/v1/messages", json=body).json()["model"] == "own"


def test_an_alias_that_is_the_name_changes_nothing(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    client = start_frontend(start_backend(), served_model_name="own", model_aliases=("own", "own")).client
    assert len(client.get("/v1/models").json()["data"]) == 1


@pytest.mark.parametrize("root", ["/llm", "/team/llm"])
def test_a_proxy_may_take_the_path_away_or_not(
    start_backend: StartBackend, start_frontend: StartFrontend, root: str
) -> None:
    client = start_frontend(start_backend(), root_path=root).client
    for prefix in ("", root):
        assert client.get(f"{prefix}/health").json() == {"status": "ok"}
        assert client.post(f"{prefix}/v1/completions", json=COMPLETION).status_code == 200
        assert client.get(f"{prefix}/").headers["content-type"].startswith("text/html")
    assert client.get("/openapi.json").json()["servers"] == [{"url": root}]
    assert client.get(root).headers["location"] == f"{root}/"  # the page's links are relative
    error_of(client.get(f"{root}x/health"), 404)
    error_of(client.get(f"{root}{root}/health"), 404)
    wrong = client.post(f"{root}/v1/messages", json={})
    assert wrong.json()["type"] == "error"  # in the form of the API that was called


def test_keys_guard_what_lies_below_the_path(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    client = start_frontend(start_backend(), root_path="/llm", api_key="secret").client
    assert client.get("/llm/health").status_code == 200
    error_of(client.get("/llm/v1/models"), 401)
    headers = {"authorization": "Bearer secret"}
    assert client.get("/llm/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("root", ["/v1", "/docs", "/v1/chat", "/page"])
def test_a_path_that_begins_as_an_endpoint_is_refused(root: str) -> None:
    with pytest.raises(CommandError, match=f"--root-path is {root}, where this server has {root}"):
        check_root_path(root)
    check_root_path(f"{root}-of-mine")


@pytest.mark.parametrize("text", ["llm", "/", "/a/../b", "/.", "/a b", "//a"])
def test_what_is_no_path_of_a_server_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not the path of a server; write for example /llm"):
        root_path(text)
    assert root_path("/llm/") == "/llm"
