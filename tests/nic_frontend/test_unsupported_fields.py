"""Fields that are not served: refused where they ask for something, and listed in docs/api.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from harness import CHAT, COMPLETION, Frontend, error_of

from nic_frontend.api.fields import UNSUPPORTED
from nic_frontend.api.notes import known, unsupported
from nic_frontend.api.schema.chat import ChatRequest
from nic_frontend.api.schema.generation import CompletionRequest
from nic_frontend.api.schema.messages import MessagesRequest
from nic_frontend.api.schema.responses import ResponsesRequest

pytestmark = pytest.mark.usefixtures("kept_frontend")

RESPONSE = {"input": "hi", "max_output_tokens": 2}
BLOCKS = [("/v1/responses", RESPONSE), ("/v1/messages", CHAT)]


def test_neutral_values_of_unsupported_fields(frontend: Frontend) -> None:
    neutral = {
        "suffix": None, "best_of": 1, "logprobs": None, "logit_bias": {}, "tools": [], "tool_choice": "none",
        "response_format": {"type": "text"}, "user": "someone", "metadata": {"a": 1}, "unknown_field": [1, 2],
    }  # fmt: skip
    assert frontend.client.post("/v1/completions", json={**COMPLETION, **neutral}).status_code == 200
    chat = {**CHAT, **neutral, "logprobs": False, "top_logprobs": 0, "store": False}
    assert frontend.client.post("/v1/chat/completions", json=chat).status_code == 200


def test_what_only_one_endpoint_has(frontend: Frontend) -> None:
    asked = {**COMPLETION, "continue_final_message": True}
    error = error_of(frontend.client.post("/v1/completions", json=asked), 400)
    assert (error["param"], error["code"]) == ("continue_final_message", "unsupported_parameter")
    neutral = {**COMPLETION, "continue_final_message": False}
    assert frontend.client.post("/v1/completions", json=neutral).status_code == 200


@pytest.mark.parametrize(("path", "body"), BLOCKS)
def test_what_changes_chats_alone_is_refused_elsewhere(
    frontend: Frontend, path: str, body: dict[str, Any]
) -> None:
    wanted = {"presence_penalty": 1.0, "logit_bias": {"5": 1}, "structured_outputs": {"regex": "a"}}
    error = error_of(frontend.client.post("/v1/responses", json={**RESPONSE, **wanted}), 400)
    assert error["message"].startswith(
        "'logit_bias', 'presence_penalty', 'structured_outputs' are not supported"
    )
    refused = frontend.client.post(path, json={**body, "priority": 1})
    assert (refused.status_code, "'priority'" in refused.text) == (400, True)
    neutral = {
        "presence_penalty": 0,
        "logit_bias": {},
        "structured_outputs": None,
        "n": 1,
        "skip_special_tokens": True,
    }
    assert frontend.client.post(path, json={**body, **neutral}).status_code == 200


@pytest.mark.parametrize("model", [ResponsesRequest, MessagesRequest])
def test_no_field_of_chats_is_ignored_without_a_word(model: type) -> None:
    fields = {*ChatRequest.__struct_fields__, *CompletionRequest.__struct_fields__}
    elsewhere = {"messages", "prompt", "max_tokens", "stream_options"}  # `input`, `max_output_tokens`
    assert fields - elsewhere <= known(model)


@pytest.mark.parametrize(("path", "body"), BLOCKS)
def test_a_seed_is_one_everywhere(frontend: Frontend, path: str, body: dict[str, Any]) -> None:
    assert frontend.client.post(path, json={**body, "seed": 7}).status_code == 200
    descriptor = frontend.backend.accepted[-1].descriptor
    assert descriptor is not None
    assert int(descriptor["seed"]) == 7


def test_no_field_of_vllms_that_changes_an_answer_is_ignored(frontend: Frontend) -> None:
    wanted = {
        "guided_whitespace_pattern": " ", "logprob_token_ids": [5], "custom_logit_processor": "{}",
        "repetition_detection": {"max_pattern_size": 4}, "structural_tag": "{}", "watermarking": True,
        "vllm_xargs": {"a": 1}, "kv_transfer_params": {"do_remote_decode": True},
        "ec_transfer_params": {"a": 1}, "return_prompt_text": True, "return_token_offsets": True,
    }  # fmt: skip
    for path, body in (("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)):
        message = error_of(frontend.client.post(path, json={**body, **wanted}), 400)["message"]
        assert all(f"'{name}'" in message for name in wanted)
        neutral = dict.fromkeys(wanted)
        assert frontend.client.post(path, json={**body, **neutral}).status_code == 200


def test_all_that_is_refused_is_named_at_once(frontend: Frontend) -> None:
    body = {**COMPLETION, "suffix": "x", "use_beam_search": True, "length_penalty": 2}
    error = error_of(frontend.client.post("/v1/completions", json=body), 400)
    assert error["message"].startswith("'length_penalty', 'suffix', 'use_beam_search' are not supported")
    assert error["param"] == "length_penalty"


def test_likely_mistakes_are_named(frontend: Frontend) -> None:
    mistakes = {"max_token": 5, "temprature": 1, "käse": 1, "x" * 5000: 1}
    for stream in (False, True):
        answer = frontend.client.post("/v1/completions", json={**COMPLETION, **mistakes, "stream": stream})
        assert answer.status_code == 200
        told = answer.headers["x-blink-warning"]
        assert "'max_token' was ignored; did you mean 'max_tokens'?" in told
        assert "did you mean 'temperature'?" in told
        assert len(told) < 300
    many = {f"max_token{i}": 1 for i in range(20000)}
    assert frontend.client.post("/v1/completions", json={**COMPLETION, **many}).status_code == 200
    known = {**COMPLETION, "user": "someone", "metadata": {}, "speed": "fast", "something_else": 1}
    assert "x-blink-warning" not in frontend.client.post("/v1/completions", json=known).headers


def test_the_page_of_the_api_lists_what_is_refused() -> None:
    text = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    refused = {*UNSUPPORTED, *unsupported(ChatRequest), *unsupported(CompletionRequest), "best_of"}
    (row,) = re.findall(r"^\| refused with 400 unless neutral \|(.*)\|$", text, re.MULTILINE)
    assert set(re.findall(r"`(.+?)`", row)) == refused
