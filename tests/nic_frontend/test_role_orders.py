"""Conversations of /v1/messages as prompts: the system, roles that speak twice, results of tools."""

# ruff: noqa: E501 (bodies are long)

from __future__ import annotations

from typing import Any

from harness import Frontend, Speak
from templates import HERMES, STRICT_MISTRAL
from tiny_model import build_tokenizer

BODY: dict[str, Any] = {"max_tokens": 200, "messages": [{"role": "user", "content": "hi"}]}


def post(frontend: Frontend, path: str = "/v1/messages", **changes: Any) -> Any:
    answer = frontend.client.post(path, json={**BODY, **changes})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def test_a_conversation(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Köln"}}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Weather?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "Well."}, use]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]}, {"type": "text", "text": "Really?"}]},
    ]  # fmt: skip
    post(
        frontend,
        messages=messages,
        system=[{"type": "text", "text": "Be"}, {"type": "text", "text": "brief."}],
    )
    shown = prompt(frontend)
    assert shown.startswith("<|im_start|>system\nBe\nbrief.<|im_end|>")
    assert 'assistant\nWell.<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}' in shown
    assert shown.index("<|im_start|>tool\nrain") < shown.index("<|im_start|>user\nReally?")


def test_the_system_and_roles_that_speak_twice(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"role": "user", "content": [{"type": "text", "text": "Now?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "Well."}]},
        {"role": "assistant", "content": [{"type": "text", "text": "So."}, use]},
        {"role": "system", "content": [{"type": "text", "text": "Hurry."}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "rain"}]},
        {"role": "system", "content": "Stop."},
    ]
    body = {"messages": messages, "system": "Be brief."}
    used = post(frontend, **body).json()["usage"]["input_tokens"]
    assert prompt(frontend) == (
        "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nWeather?\nNow?<|im_end|>\n"
        '<|im_start|>assistant\nWell.\nSo.<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
        "<|im_end|>\n<|im_start|>tool\nrain<|im_end|>\n<|im_start|>system\nHurry.\nStop.<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert post(frontend, "/v1/messages/count_tokens", **body).json() == {"input_tokens": used}


def test_what_changes_with_every_request_is_not_shown(speak: Speak) -> None:
    """It would keep prompts from being found in the prefix cache."""
    frontend = speak(HERMES, "It rains.")
    header = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1; cch=4f1c2;"}
    post(frontend, system=[header, {"type": "text", "text": "Be brief."}])
    assert prompt(frontend).startswith("<|im_start|>system\nBe brief.<|im_end|>")
    post(frontend, system=[header])
    assert prompt(frontend).startswith("<|im_start|>user")
    post(
        frontend, system=header["text"], messages=[{"role": "system", "content": [header]}, *BODY["messages"]]
    )
    assert prompt(frontend).startswith("<|im_start|>user")


def test_what_stands_behind_what_changes_is_shown(speak: Speak) -> None:
    """Gateways join the blocks of Claude Code's system to one text."""
    frontend = speak(HERMES, "It rains.")
    header = "x-anthropic-billing-header: cc_version=2.1; cch=4f1c2;"
    for system in (
        f"{header}\nBe brief.\nBe kind.",
        f"{header}\n\nBe brief.\nBe kind.",
        [{"type": "text", "text": f"{header}\nBe brief."}, {"type": "text", "text": "Be kind."}],
    ):
        post(frontend, system=system)
        assert prompt(frontend).startswith("<|im_start|>system\nBe brief.\nBe kind.<|im_end|>")
    for system in ("x-anthropic-billing-header is a header.", f"Be brief.\n{header}"):
        post(frontend, system=system)
        assert prompt(frontend).startswith(f"<|im_start|>system\n{system}<|im_end|>")
    blocks = [{"type": "text", "text": "Be brief."}, {"type": "text", "text": header}]
    post(frontend, system=blocks, messages=[*BODY["messages"], {"role": "system", "content": header}])
    assert prompt(frontend).count(header) == 2


def test_reminders_of_the_system_do_not_speak_for_the_user(speak: Speak) -> None:
    """Claude Code sends one behind most results. Templates forget what was thought before the user's last turn,
    and a turn that goes on has to begin as it did, to be found in the prefix cache.
    """
    use = {"type": "tool_use", "id": "abcdefghi", "name": "weather", "input": {}}
    turns: list[dict[str, Any]] = [*BODY["messages"]]
    for template, reminder in ((HERMES, "<|im_start|>system\nHurry."), (STRICT_MISTRAL, "rain\n\nHurry.[/")):
        frontend, turns, shown = speak(template, "Oh."), [*BODY["messages"]], ""
        for _ in range(3):
            turns += [
                {"role": "assistant", "content": [use]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "abcdefghi", "content": "rain"}]},
                {"role": "system", "content": "Hurry."},
            ]  # fmt: skip
            post(frontend, messages=turns)
            before, shown = shown, prompt(frontend).removesuffix("<|im_start|>assistant\n")
            assert shown.startswith(before)
        assert shown.count(reminder) == 3


def test_failures_of_tools_are_shown(speak: Speak) -> None:
    frontend = speak(HERMES, "Oh.")
    uses = [{"type": "tool_use", "id": f"toolu_{i}", "name": "weather", "input": {}} for i in range(3)]
    results = [
        {"type": "tool_result", "tool_use_id": "toolu_0", "content": "no such city", "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "rain", "is_error": False},
    ]
    turns = [{"role": "assistant", "content": uses}, {"role": "user", "content": results}]
    post(frontend, messages=[*BODY["messages"], *turns])
    shown = prompt(frontend)
    for result in ("Error: no such city", "Error", "rain"):
        assert f"<|im_start|>tool\n{result}<|im_end|>" in shown
