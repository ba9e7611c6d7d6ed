"""Thoughts that clients keep: sealed in answers, and given to the template when they come back."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from harness import Frontend, Speak, error_of
from templates import HERMES
from tiny_model import build_tokenizer
from typed_sse import typed_events

from nic_frontend.store import seal as module
from nic_frontend.store.seal import LONGEST, NotOpened, Seal

THINKING = HERMES.replace(
    "<|im_start|>{{ message.role }}\n",
    "<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}"
    "<think>{{ message.reasoning_content }}</think>{% endif %}",
)
SEALED = {"include": ["reasoning.encrypted_content"], "store": False}
KEY, OWNER = b"0123456789abcdef", b"owner"


@pytest.fixture
def frontend(speak: Speak) -> Frontend:
    return speak(THINKING, "<think>Hm.</think>It rains.")


def post(frontend: Frontend, **body: Any) -> Any:
    answer = frontend.client.post("/v1/responses", json={"input": "hi", **body})
    assert answer.status_code == 200, answer.text
    return answer


def thought(frontend: Frontend, **body: Any) -> dict[str, Any]:
    found: dict[str, Any] = post(frontend, **SEALED, **body).json()["output"][0]
    assert found["type"] == "reasoning"
    return found


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def test_thoughts_come_back(frontend: Frontend) -> None:
    """As from clients that keep nothing else of them: the AI SDK, Codex."""
    answer = post(frontend, **SEALED)
    assert "x-blink-warning" not in answer.headers
    reasoning, said = answer.json()["output"]
    assert b"Hm." not in base64.urlsafe_b64decode(reasoning["encrypted_content"].removeprefix(module.MARK))
    kept = {"type": "reasoning", "summary": [], "encrypted_content": reasoning["encrypted_content"]}
    asked = [{"role": "user", "content": "hi"}, kept, said, {"role": "user", "content": "Sure?"}]
    post(frontend, input=asked)
    assert "<think>Hm.</think>It rains." in prompt(frontend)
    post(frontend, input=[{**item, "content": []} if item is kept else item for item in asked])
    assert "<think>Hm.</think>It rains." in prompt(frontend)


def test_a_stream_has_them_sealed_once(frontend: Frontend) -> None:
    found = typed_events(post(frontend, stream=True, **SEALED))
    (added,) = [
        event["item"]
        for event in found
        if event["type"] == "response.output_item.added" and event["item"]["type"] == "reasoning"
    ]
    assert "encrypted_content" not in added
    done = next(event["item"] for event in found if event["type"] == "response.output_item.done")
    assert done["encrypted_content"].startswith("blink1.")
    assert found[-1]["response"]["output"][0] == done


def test_nobody_is_sent_what_was_not_asked_for(frontend: Frontend) -> None:
    assert "encrypted_content" not in post(frontend).json()["output"][0]


def test_what_is_no_seal_is_refused_by_its_place(frontend: Frontend) -> None:
    items = [{"role": "user", "content": "hi"}, {**thought(frontend), "encrypted_content": "gAAAAABof"}]
    error = error_of(frontend.client.post("/v1/responses", json={"input": items}), 400)
    assert error["param"] == "input[1].encrypted_content"
    assert "not made by this server" in error["message"]


def test_another_server_with_the_same_key_takes_them(speak: Speak) -> None:
    said = "<think>Hm.</think>It rains."
    one, other, foreign = (speak(THINKING, said, seal_key=key) for key in (KEY, KEY, KEY[::-1]))
    item = thought(one)
    del item["content"]
    post(other, input=[item, {"role": "user", "content": "Sure?"}])
    assert "<think>Hm.</think>" in prompt(other)
    error = error_of(foreign.client.post("/v1/responses", json={"input": [item]}), 400)
    assert "another key" in error["message"]


def test_the_text_comes_back() -> None:
    seal = Seal(KEY, b"model", 100.0)
    for text in ("", "Hm.", "Köln \ud800", "x" * 100_000):
        sealed = seal.sealed(OWNER, text)
        assert sealed is not None
        assert sealed.isascii()
        assert seal.opened(OWNER, sealed) == text
    assert seal.sealed(OWNER, "x") != seal.sealed(OWNER, "x")
    assert seal.sealed(OWNER, "x" * LONGEST) is None


def flipped(text: str, place: int) -> str:
    return text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]


Opening = Callable[[Seal, str], str]


@pytest.mark.parametrize(
    ("opening", "told"),
    [
        (lambda seal, text: seal.opened(b"other", text), "another API key"),
        (lambda seal, text: Seal(KEY, b"other", 100.0).opened(OWNER, text), "another model"),
        (lambda seal, text: Seal(KEY + b"x", b"model", 100.0).opened(OWNER, text), "another key"),
        (lambda seal, text: seal.opened(OWNER, flipped(text, 60)), "changed"),
        (lambda seal, text: seal.opened(OWNER, flipped(text, 35)), "changed"),  # the time
        (lambda seal, text: seal.opened(OWNER, text[:-8]), "changed"),
        (lambda seal, text: seal.opened(OWNER, text[:40]), "cut off"),
        (lambda seal, text: seal.opened(OWNER, text + "%"), "cut off"),
        (lambda seal, text: seal.opened(OWNER, text + "Ä"), "cut off"),
        (lambda seal, text: seal.opened(OWNER, text[1:]), "cut off"),
        (lambda seal, text: seal.opened(OWNER, text + "A" * LONGEST), "characters"),
        (lambda seal, text: seal.opened(OWNER, ""), "cut off"),
    ],
)
def test_what_is_not_opened(opening: Opening, told: str) -> None:
    seal = Seal(KEY, b"model", 100.0)
    sealed = seal.sealed(OWNER, "What I thought of it.")
    assert sealed is not None
    with pytest.raises(NotOpened, match=told):
        opening(seal, sealed)


def test_what_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1e9
    monkeypatch.setattr(module.time, "time", lambda: now)
    seal = Seal(KEY, b"model", 86400.0)
    sealed = seal.sealed(OWNER, "x")
    assert sealed is not None
    now += 86399
    assert seal.opened(OWNER, sealed) == "x"
    now += 1
    with pytest.raises(NotOpened, match="older than 1 days"):
        seal.opened(OWNER, sealed)


@pytest.mark.parametrize("place", range(0, 200, 7))
def test_no_change_goes_unnoticed(place: int) -> None:
    seal = Seal(KEY, b"model", 1e9)
    sealed = seal.sealed(OWNER, "x" * 100)
    assert sealed is not None
    with pytest.raises(NotOpened):
        seal.opened(OWNER, flipped(sealed, place))
