"""Messages of a chat, and the prompt that the model's template makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from harness import Frontend
from mock_backend import MockBackend
from tokenizers import Tokenizer


@pytest.fixture
def tokens(model_dir: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_dir / "tokenizer.json"))


def post(frontend: Frontend, **body: Any) -> None:
    response = frontend.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text


def test_chat_prompt_is_the_rendered_template(
    frontend: Frontend, backend: MockBackend, tokens: Tokenizer
) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    post(frontend, messages=messages, max_tokens=1)
    expected = (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\n"
    )
    assert backend.accepted[-1].prompt == tokens.encode(expected, add_special_tokens=False).ids
    post(frontend, messages=messages, max_tokens=1, add_generation_prompt=False)
    shorter = expected.removesuffix("<|im_start|>assistant\n")
    assert backend.accepted[-1].prompt == tokens.encode(shorter, add_special_tokens=False).ids


def test_messages_as_clients_write_them(frontend: Frontend, backend: MockBackend, tokens: Tokenizer) -> None:
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "user", "content": "b"},
    ]
    post(frontend, messages=messages, max_tokens=1)
    said = [("system", "Be brief."), ("user", "a"), ("assistant", ""), ("assistant", ""), ("user", "b")]
    expected = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in said)
    expected += "<|im_start|>assistant\n"
    assert backend.accepted[-1].prompt == tokens.encode(expected, add_special_tokens=False).ids


def test_refusals_are_shown(frontend: Frontend, backend: MockBackend, tokens: Tokenizer) -> None:
    """Of an answer that another server gave."""
    user = {"role": "user", "content": "a"}
    text = {"type": "text", "text": "Well."}
    for message, shown in (
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"content": "Well.", "refusal": "No."}, "Well.\nNo."),
        ({"content": [text], "refusal": "No."}, "Well.\nNo."),
        ({"content": "Well.", "refusal": None}, "Well."),
    ):
        post(frontend, messages=[user, {"role": "assistant", **message}, user], max_tokens=1)
        assert f"assistant\n{shown}<|im_end|>" in tokens.decode(
            backend.accepted[-1].prompt, skip_special_tokens=False
        )


def test_only_the_assistant_refuses(frontend: Frontend, backend: MockBackend, tokens: Tokenizer) -> None:
    """An unknown field of another message may be anything."""
    post(frontend, messages=[{"role": "user", "content": "", "refusal": 5}], max_tokens=1)
    assert "user\n<|im_end|>" in tokens.decode(backend.accepted[-1].prompt, skip_special_tokens=False)


def test_options_of_the_template_may_have_any_name(frontend: Frontend) -> None:
    options = {"self": 1, "options": 2, "source": 3, "args": 4, "enable_thinking": False}
    body = {"messages": [{"role": "user", "content": "hi"}], "chat_template_kwargs": options}
    post(frontend, **body, max_tokens=1)
