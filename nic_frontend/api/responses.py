"""/v1/responses: its input as a conversation, and the job that it becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar

from nic_frontend.api.constraint import chosen
from nic_frontend.api.controls import controls_of
from nic_frontend.api.conversation import (
    Conversation,
    Message,
    Prompt,
    for_template,
    options_of,
    prompt_of,
    shown_tools,
    tools_for_template,
)
from nic_frontend.api.effects import without_effect
from nic_frontend.api.fields import with_typed_choice
from nic_frontend.api.items import messages_of
from nic_frontend.api.job import Job
from nic_frontend.api.keep import Kept
from nic_frontend.api.memory import Memory
from nic_frontend.api.notes import refuse_unsupported
from nic_frontend.api.parameters import Parameters, parse
from nic_frontend.api.recall import Recalled, check_memory, check_numbers, is_stored, recall
from nic_frontend.api.responses_answer import ResponsesAnswer
from nic_frontend.api.schema import responses as schema
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import in_common
from nic_frontend.api.schema.responses import LOGPROBS, SEALED, InputItem, ResponsesRequest
from nic_frontend.api.served import Served
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.content import Content
from nic_frontend.templates.prompt_end import PromptEnd
from ringbuffer.model_file import shown

T = TypeVar("T")

UNFINISHED = ("in_progress", "incomplete")  # of an item's `status`


async def parse_response(body: dict[str, Any], served: Served) -> Job:
    assert served.memory is not None
    refuse_unsupported(body, ResponsesRequest)
    items = body.get("input")
    if isinstance(items, list) and items:
        served.limits.max_answer(len(items), "input")  # an item has at least one token (F10)
    body = with_typed_choice(body)
    request = checked(body, ResponsesRequest)
    for name in ("tools", "tool_choice", "text"):  # which each answer has again
        await asyncio.sleep(0)
        await check_numbers(body.get(name), name)
    await asyncio.sleep(0)  # other calls' turn, as behind each step: there may be many items and tools
    _check_metadata(request.metadata or {})
    check_memory(request, served.memory)
    common = in_common(request)
    parameters = parse(
        common,
        served.limits,
        max_tokens=request.max_output_tokens,
        max_tokens_field="max_output_tokens",
        logprobs=_told(request),
        controls=await controls_of(common, served),
    )
    recalled = await recall(request, served.memory)
    await asyncio.sleep(0)
    listed = _tools(request, recalled.items)
    tools = [tool for given, where in listed for tool in functions_of(given, schema.FunctionTool, *where)]
    await asyncio.sleep(0)
    talk = await _conversation(request, recalled, tools)
    prompt = await prompt_of(talk, served)
    answer = _answer(request, body, tools, parameters, prompt, served)
    kept = _kept(request, recalled, answer, served.memory)
    warnings = [*without_effect(body, request, served.memory), *_left_out(listed)]
    return Job(
        parameters,
        [prompt.tokens],
        "input",
        answer,
        prompt.shown,
        prompt.conclusion,
        prompt.grammars,
        [*warnings, *prompt.warnings],
        kept=kept,
    )


def _check_metadata(metadata: dict[str, str]) -> None:
    """Raises ApiError 400 for a name or a value that is too long."""
    for name, value in metadata.items():
        for what, text, longest in (
            ("a name", name, schema.LONGEST_NAME),
            (f"a value, of {shown(name)},", value, schema.LONGEST_VALUE),
        ):
            if len(text) > longest:
                raise bad_request(
                    f"'metadata' has {what} of {len(text)} characters, and may have such of {longest}",
                    "metadata",
                    "invalid_value",
                )


async def _conversation(
    request: ResponsesRequest, recalled: Recalled, tools: list[schema.FunctionTool]
) -> Conversation:
    functions = [Function(tool.name, tool.parameters, bool(tool.strict)) for tool in tools]
    one_call = request.parallel_tool_calls is False or isinstance(request.tool_choice, schema.FunctionChoice)
    constraint = chosen(functions, *_choice(request), one_call, _content(request))
    await asyncio.sleep(0)  # other calls' turn, as behind each step
    listed = messages_of(request.instructions, recalled.items)
    await asyncio.sleep(0)
    messages = await for_template(listed)
    await asyncio.sleep(0)
    described = [_shown(tool) for tool in tools]
    await asyncio.sleep(0)
    shown = shown_tools(tools_for_template(described), constraint)
    await asyncio.sleep(0)
    return Conversation(
        messages=messages,
        tools=shown,
        constraint=constraint,
        one_call=not constraint.many,
        effort=request.reasoning.effort if request.reasoning else None,
        effort_param="reasoning.effort",
        options=options_of(request.chat_template_kwargs),
        end=_end(request),
        param="input",
    )


def _answer(
    request: ResponsesRequest,
    body: dict[str, Any],
    tools: list[schema.FunctionTool],
    parameters: Parameters,
    prompt: Prompt,
    served: Served,
) -> ResponsesAnswer:
    assert served.memory is not None
    splitter = prompt.splitter()
    answer = ResponsesAnswer(served.name, request, body, tools, parameters, splitter, served.texts())
    answer.stored = is_stored(request, served.memory)
    answer.sealed = served.memory.sealed if SEALED in (request.include or ()) else None
    return answer


def _kept(
    request: ResponsesRequest, recalled: Recalled, answer: ResponsesAnswer, memory: Memory
) -> Kept | None:
    """Where the response is stored."""
    if memory.store is None or not answer.stored:
        return None
    return Kept(
        memory.store, answer, request.previous_response_id, recalled.own, memory.within_s,
        in_background=bool(request.background),
    )  # fmt: skip


def _end(request: ResponsesRequest) -> PromptEnd:
    """A message of the assistant that says of itself that it is not complete is continued, as in vLLM."""
    if isinstance(request.input, str) or not request.input:
        return PromptEnd.ANSWER
    last = request.input[-1]
    if (last.type, last.role) != ("message", "assistant"):
        return PromptEnd.ANSWER
    return PromptEnd.WITHIN if last.status in UNFINISHED else PromptEnd.ANSWER


def _choice(request: ResponsesRequest) -> tuple[str, list[str] | None]:
    choice = request.tool_choice
    if isinstance(choice, schema.FunctionChoice):
        return "required", [choice.name]
    if isinstance(choice, schema.AllowedChoice):
        functions = functions_of(choice.tools, schema.FunctionChoice, "tool_choice", "tools")
        return choice.mode, [function.name for function in functions]
    return choice or "auto", None


def _content(request: ResponsesRequest) -> Content | None:
    wanted = request.text.format if request.text else None
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Content("json_object", None, "text.format")
    if wanted.schema is None:
        name = "text.format.schema"
        raise bad_request(f"'{name}' is missing", name, "missing_required_parameter")
    return Content("json", wanted.schema, "text.format")


def _told(request: ResponsesRequest) -> int | None:
    """How many of the likeliest tokens are to be told beside each of the answer's."""
    return request.top_logprobs or 0 if LOGPROBS in (request.include or ()) else None


def _tools(
    request: ResponsesRequest, items: Sequence[InputItem]
) -> list[tuple[list[Message], tuple[str | int, ...]]]:
    """What has tools, and where it stands. Codex sends some of its tools as items. The request's own items
    are the last ones; those before them were checked when they were stored.
    """
    first = len(items) - len(request.input) if isinstance(request.input, list) else len(items)
    return [
        (request.tools or [], ("tools",)),
        *(
            (item.tools or [], ("input", i, "tools"))
            for i, item in enumerate(items, -first)
            if item.type == "additional_tools"
        ),
    ]


def functions_of(tools: list[Message], model: type[T], *where: str | int) -> list[T]:
    """The functions among `tools`, as `model`: agents send others beside them, such as a search of the web.

    Raises ApiError 400 for functions that are none.
    """
    return [checked(tool, model, *where, i) for i, tool in enumerate(tools) if not _is_other(tool)]


def _is_other(tool: Message) -> bool:
    kind = tool.get("type")
    return isinstance(kind, str) and kind != "function"


def _shown(tool: schema.FunctionTool) -> Message:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _left_out(tools: list[tuple[list[Message], tuple[str | int, ...]]]) -> list[str]:
    """A warning about tools that the model is not shown."""
    others = [tool for given, _ in tools for tool in given if _is_other(tool)]
    names = ", ".join(f"{tool['type']} {tool.get('name', '')}".strip() for tool in others)
    return [f"tools that are no functions were left out: {names}"] if others else []
