"""/v1/responses: objects and events, calls, reasoning, inputs of every kind, and what is refused."""

# ruff: noqa: E501 (bodies are long)

from __future__ import annotations

from typing import Any

import openai
import pytest
from harness import Frontend, Speak, error_of
from limits import WAIT_S
from templates import HERMES
from tiny_model import build_tokenizer
from typed_sse import typed_events

from nic_frontend.api.schema import answers
from nic_frontend.api.schema.checked import checked

pytestmark = pytest.mark.usefixtures("kept_frontend")

CALL = '<tool_call>{"name": "weather", "arguments": {"city": "Köln"}}</tool_call>'
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": False}
OTHERS = [
    {"type": "web_search"},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
    {"type": "namespace", "name": "crm", "description": "d", "tools": [TOOL]},
]
EVERYTHING = f"<think>Hm.</think>One moment.{CALL}{CALL}"


def post(frontend: Frontend, **body: Any) -> Any:
    answer = frontend.client.post("/v1/responses", json={"input": "hi", **body})
    assert answer.status_code == 200, answer.text
    return answer


def prompt(frontend: Frontend) -> str:
    return str(build_tokenizer().decode(frontend.backend.accepted[-1].prompt, skip_special_tokens=False))


def shape(output: list[dict[str, Any]]) -> list[Any]:
    found: list[Any] = []
    for item in output:
        assert item["status"] == "completed"
        if item["type"] == "function_call":
            found.append((item["type"], item["name"], item["arguments"]))
        else:
            found.append((item["type"], item["content"][0]["text"]))
    return found


EXPECTED = [
    ("reasoning", "Hm."),
    ("message", "One moment."),
    ("function_call", "weather", '{"city": "Köln"}'),
    ("function_call", "weather", '{"city": "Köln"}'),
]


def test_whole(speak: Speak) -> None:
    found = post(speak(HERMES, EVERYTHING), tools=[TOOL], instructions="Be brief.").json()
    checked(found, answers.Response)
    openai.types.responses.Response.model_validate(found)
    assert (found["object"], found["status"], found["store"]) == ("response", "completed", False)
    assert (found["instructions"], found["error"]) == ("Be brief.", None)
    assert shape(found["output"]) == EXPECTED
    usage = found["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert 0 < usage["output_tokens_details"]["reasoning_tokens"] < usage["output_tokens"]


@pytest.mark.parametrize("tokens_per_step", [1, 9, 1000])
def test_events(speak: Speak, tokens_per_step: int) -> None:
    frontend = speak(HERMES, EVERYTHING)
    frontend.backend.tokens_per_step = tokens_per_step
    found = typed_events(post(frontend, tools=[TOOL], stream=True))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    last = found[-1]
    openai.types.responses.ResponseCompletedEvent.model_validate(last)
    assert shape(last["response"]["output"]) == EXPECTED
    added = [event for event in found if event["type"] == "response.output_item.added"]
    done = [event for event in found if event["type"] == "response.output_item.done"]
    assert [event["item"]["id"] for event in added] == [item["id"] for item in last["response"]["output"]]
    assert [event["item"] for event in done] == last["response"]["output"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    for kind, expected in (
        ("output_text", ["One moment."]),
        ("reasoning_text", ["Hm."]),
        ("function_call_arguments", ['{"city": "Köln"}'] * 2),
    ):
        ends = [event for event in found if event["type"] == f"response.{kind}.done"]
        assert [event.get("text", event.get("arguments")) for event in ends] == expected
        for end in ends:
            pieces = [
                e["delta"]
                for e in found
                if e["type"] == f"response.{kind}.delta" and e["item_id"] == end["item_id"]
            ]
            assert "".join(pieces) == end.get("text", end.get("arguments"))


def test_an_answer_that_is_cut_off(speak: Speak) -> None:
    frontend = speak(HERMES, "One moment, please.")
    found = post(frontend, max_output_tokens=3).json()
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert found["output"][0]["status"] == "incomplete"
    assert typed_events(post(frontend, max_output_tokens=3, stream=True))[-1]["type"] == "response.incomplete"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("changes", "status", "of_call"),
    [
        ({"stop": ["ln"]}, "completed", "incomplete"),
        ({"max_output_tokens": len(build_tokenizer().encode(CALL).ids)}, "incomplete", "completed"),
    ],
)
def test_a_call_is_complete_with_its_arguments(
    speak: Speak, stream: bool, changes: dict[str, Any], status: str, of_call: str
) -> None:
    answer = post(speak(HERMES, CALL), tools=[TOOL], stream=stream, **changes)
    events = typed_events(answer) if stream else []
    found = events[-1]["response"] if stream else answer.json()
    assert (found["status"], found["output"][0]["status"]) == (status, of_call)
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == (found["output"] if stream else [])


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(speak: Speak, stream: bool) -> None:
    answer = post(speak(HERMES, "It rains now."), stop=["now"], stream=stream)
    found = typed_events(answer)[-1]["response"] if stream else answer.json()
    assert (found["status"], shape(found["output"])) == ("completed", [("message", "It rains ")])


def test_a_conversation(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Well.", "annotations": []}]},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Köln"}'},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]},
    ]  # fmt: skip
    post(frontend, input=items, instructions="Be brief.")
    shown = prompt(frontend)
    assert shown.startswith("<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>\n<|im_start|>user\nWeather?")
    call = '<tool_call>\n{"name": "weather", "arguments": '
    assert f'assistant\nWell.{call}{{"city": "Köln"}}}}\n</tool_call>{call}{{}}}}\n</tool_call>' in shown
    assert shown.index("rain") < shown.index("sun")
    assert shown.count("<|im_start|>assistant") == 2


def test_arguments_that_are_no_json_are_shown(speak: Speak) -> None:
    frontend = speak(HERMES, "It rains.")
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city": "K'}
    result = {"type": "function_call_output", "call_id": "c1", "output": "not valid JSON"}
    post(frontend, input=[{"role": "user", "content": "Weather?"}, call, result])
    assert '"arguments": {"INVALID_JSON": "{\\"city\\": \\"K"}}' in prompt(frontend)


def test_leading_instructions_are_one_message(speak: Speak) -> None:
    """Templates take one message of the system, and only at the beginning."""
    frontend = speak(HERMES, "It rains.")
    items = [
        {"role": "developer", "content": "Be kind."},
        {"type": "message", "role": "system", "content": [{"type": "input_text", "text": "Be quick."}]},
        {"role": "user", "content": "Weather?"},
        {"role": "developer", "content": "Hurry."},
    ]
    post(frontend, input=items, instructions="Be brief.")
    assert prompt(frontend) == (
        "<|im_start|>system\nBe brief.\n\nBe kind.\n\nBe quick.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>system\nHurry.<|im_end|>\n<|im_start|>assistant\n"
    )
    post(frontend, input=items[:3])
    assert prompt(frontend).startswith("<|im_start|>system\nBe kind.\n\nBe quick.<|im_end|>")


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "additional_tools"}]}, "input[0].tools"),
        (
            {"input": [{"type": "additional_tools", "tools": [{"type": "function"}]}]},
            "input[0].tools[0].name",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"tools": [{"type": "web_search"}, {"type": "function", "name": "a b"}]}, "tools[1].name"),
        ({"tools": [{"type": None, "name": "f"}]}, "tools[0].type"),
        ({"tools": ["web_search"]}, "tools[0]"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": OTHERS}, "tool_choice"),
        (
            {"tool_choice": {"type": "function", "name": "apply_patch"}, "tools": [*OTHERS, TOOL]},
            "tool_choice",
        ),
        ({"tool_choice": {"type": "web_search_preview"}, "tools": OTHERS}, "tool_choice.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_refused(speak: Speak, changes: dict[str, Any], param: str) -> None:
    answer = speak(HERMES, "").client.post("/v1/responses", json={"input": "hi", **changes})
    assert error_of(answer, 400)["param"] == param


@pytest.mark.parametrize("stream", [False, True])
def test_tools_that_are_no_functions_are_left_out(speak: Speak, stream: bool) -> None:
    """Codex sends them beside its functions."""
    frontend = speak(HERMES, EVERYTHING)
    answer = post(frontend, tools=[*OTHERS, TOOL], stream=stream)
    told = answer.headers["x-blink-warning"]
    assert "web_search, custom apply_patch, namespace crm" in told
    found = typed_events(answer)[-1]["response"] if stream else answer.json()
    openai.types.responses.Response.model_validate(found)
    assert shape(found["output"]) == EXPECTED
    assert [tool["name"] for tool in found["tools"]] == ["weather"]
    assert "apply_patch" not in prompt(frontend)
    post(frontend, tools=OTHERS)
    assert "<tool_call>" not in prompt(frontend)


def test_tools_among_the_input(speak: Speak) -> None:
    """Codex sends some of its tools as an item."""
    frontend = speak(HERMES, EVERYTHING)
    more = {"type": "additional_tools", "role": "developer", "tools": [*OTHERS, {**TOOL, "name": "time"}]}
    items = [more, {"role": "developer", "content": "Be kind."}, {"role": "user", "content": "hi"}]
    answer = post(frontend, input=items, tools=[TOOL], instructions="Be brief.")
    assert "custom apply_patch" in answer.headers["x-blink-warning"]
    assert [tool["name"] for tool in answer.json()["tools"]] == ["weather", "time"]
    assert '"name": "time"' in prompt(frontend)
    assert "<|im_start|>system\nBe brief.\n\nBe kind.<|im_end|>" in prompt(frontend)


def test_what_is_not_done_is_told(speak: Speak) -> None:
    told = post(speak(HERMES, "x"), store=True, truncation="auto").headers["x-blink-warning"]
    assert "'store'" in told
    assert "'truncation'" in told


def test_fields_without_effect_are_named(speak: Speak) -> None:
    frontend = speak(HERMES, "x")

    def told(**body: Any) -> str:
        return str(post(frontend, store=False, **body).headers.get("x-blink-warning", ""))

    known = ["message.output_text.logprobs", "reasoning.encrypted_content"]
    nothing = {"user": None, "suffix": "", "best_of": None, "reasoning": None, "metadata": {"a": "b"}}
    assert told(include=known, **nothing) == ""
    assert told(include=[*known, "file_search_call.results"]) == (
        "without effect in 'include': 'file_search_call.results'"
    )
    assert told(user="me", prompt_cache_key="k", new=1) == "without effect: 'user', 'prompt_cache_key', 'new'"
    reasoning = {"summary": "auto", "generate_summary": "auto", "context": None}
    assert told(reasoning=reasoning, text={"verbosity": "low", "format": {"type": "text"}}) == (
        "without effect: 'reasoning.summary', 'reasoning.generate_summary', 'text.verbosity'"
    )
    assert told(max_output_token=5).startswith(
        "the unknown field 'max_output_token' was ignored; did you mean"
    )
    assert len(told(**{f"field{n}\n": n for n in range(100)})) < 1000


def test_the_official_client(speak: Speak) -> None:
    frontend = speak(HERMES, EVERYTHING)
    with openai.OpenAI(
        base_url=f"{frontend.url}/v1", api_key="none", timeout=WAIT_S, max_retries=0
    ) as client:
        whole = client.responses.create(model="tiny", input="hi", tools=[TOOL])  # type: ignore[list-item]
        assert whole.output_text == "One moment."
        assert [item.type for item in whole.output] == [kind for kind, *_ in EXPECTED]
        with client.responses.stream(model="tiny", input="hi", tools=[TOOL]) as stream:  # type: ignore[list-item]
            for _ in stream:
                pass
            final = stream.get_final_response()
        assert final.output_text == "One moment."
        history = [{"role": "user", "content": "hi"}, *[item.model_dump() for item in final.output]]
        history += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "rain"}
            for item in final.output
            if item.type == "function_call"
        ]
        client.responses.create(model="tiny", input=history, tools=[TOOL])  # type: ignore[list-item,arg-type]
    assert prompt(frontend).count("rain") == 2


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_text_is_an_input(speak: Speak, given: str) -> None:
    answer = speak(HERMES, "x").client.post("/v1/responses", json={"input": given})
    assert answer.status_code == 200, answer.text
