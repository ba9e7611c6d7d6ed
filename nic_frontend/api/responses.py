"""/v1/responses: its input as a conversation, and the job that it becomes."""

from __future__ import annotations

import asyncio
from itertools import takewhile
from typing import Any, TypeVar

from nic_frontend.api.constraint import chosen
from nic_frontend.api.controls import controls_of
from nic_frontend.api.conversation import (
    Conversation,
    Message,
    for_template,
    options_of,
    prompt_of,
    shown_tools,
    tools_for_template,
)
from nic_frontend.api.fields import with_typed_choice
from nic_frontend.api.job import Job
from nic_frontend.api.notes import on_fields, refuse_unsupported
from nic_frontend.api.parameters import parse
from nic_frontend.api.responses_answer import ResponsesAnswer
from nic_frontend.api.schema import responses as schema
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import in_common
from nic_frontend.api.schema.responses import InputItem, ResponsesRequest
from nic_frontend.api.served import Served
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.content import Content
from nic_frontend.parsing.splitter import Splitter

T = TypeVar("T")

LOGPROBS = "message.output_text.logprobs"  # in `include`
NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
    "additional_tools": ("tools",),
}


async def parse_response(body: dict[str, Any], served: Served) -> Job:
    refuse_unsupported(body, ResponsesRequest)
    _check_items(body.get("input"), served)
    body = with_typed_choice(body)
    request = checked(body, ResponsesRequest)
    await asyncio.sleep(0)  # other calls' turn, as behind each step: there may be many items and tools
    common = in_common(request)
    parameters = parse(
        common,
        served.limits,
        max_tokens=request.max_output_tokens,
        max_tokens_field="max_output_tokens",
        logprobs=_told(request),
        controls=await controls_of(common, served),
    )
    tools = [
        tool for given, where in _tools(request) for tool in functions_of(given, schema.FunctionTool, *where)
    ]
    await asyncio.sleep(0)
    functions = [Function(tool.name, tool.parameters, bool(tool.strict)) for tool in tools]
    one_call = request.parallel_tool_calls is False or isinstance(request.tool_choice, schema.FunctionChoice)
    constraint = chosen(functions, *_choice(request), one_call, _content(request))
    await asyncio.sleep(0)
    listed = messages_of(request)
    await asyncio.sleep(0)
    messages = for_template(listed)
    await asyncio.sleep(0)
    described = [_shown(tool) for tool in tools]
    await asyncio.sleep(0)
    shown = shown_tools(tools_for_template(described), constraint)
    await asyncio.sleep(0)
    talk = Conversation(
        messages=messages,
        tools=shown,
        constraint=constraint,
        one_call=not constraint.many,
        effort=request.reasoning.effort if request.reasoning else None,
        effort_param="reasoning.effort",
        options=options_of(request.chat_template_kwargs),
        param="input",
    )
    prompt = await prompt_of(talk, served)
    splitter = prompt.splitter() if prompt.splitter else Splitter(None, None)
    answer = ResponsesAnswer(served.name, request, body, tools, parameters, splitter, served.texts())
    warnings = [*on_fields(body, ResponsesRequest), *_unmet(request), *prompt.warnings]
    return Job(
        parameters,
        [prompt.tokens],
        "input",
        answer,
        prompt.shown,
        prompt.conclusion,
        prompt.grammars,
        warnings,
    )


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


def _check_items(items: Any, served: Served) -> None:
    """What is wrong before the items are looked at one by one."""
    if not isinstance(items, list) or not items:
        return
    served.limits.max_answer(len(items), "input")  # an item has at least one token (F10)
    for i, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "item_reference":
            raise bad_request(
                f"'input[{i}]' refers to a stored item, and this server stores none: send the item itself "
                "(clients do with 'store': false)",
                f"input[{i}]",
                "unsupported_parameter",
            )


def _tools(request: ResponsesRequest) -> list[tuple[list[Message], tuple[str | int, ...]]]:
    """What has tools, and where it stands. Codex sends some of its tools as items."""
    items = request.input if isinstance(request.input, list) else []
    return [
        (request.tools or [], ("tools",)),
        *(
            (item.tools or [], ("input", i, "tools"))
            for i, item in enumerate(items)
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


def _unmet(request: ResponsesRequest) -> list[str]:
    warnings = []
    if others := [tool for given, _ in _tools(request) for tool in given if _is_other(tool)]:
        names = ", ".join(f"{tool['type']} {tool.get('name', '')}".strip() for tool in others)
        warnings.append(f"tools that are no functions were left out: {names}")
    if request.top_logprobs and _told(request) is None:
        warnings.append(f"'top_logprobs' was ignored: it needs '{LOGPROBS}' in 'include'")
    if request.store:
        warnings.append("nothing is stored: 'store' was ignored")
    if request.truncation == "auto":
        warnings.append("inputs are not truncated: 'truncation' was ignored")
    return warnings


def messages_of(request: ResponsesRequest) -> list[Message]:
    """In the form of chats. What an assistant thought, said and called in a row is one message."""
    items = (
        [InputItem(role="user", content=request.input)] if isinstance(request.input, str) else request.input
    )
    for i, item in enumerate(items):
        _check(item, f"input[{i}]")
    items = [item for item in items if item.type != "additional_tools"]
    leading = list(takewhile(_instructs, items))
    messages = _instructions(request.instructions, leading)
    for item in items[len(leading) :]:
        if item.type == "function_call_output":
            content = text_of(item.output)
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
        elif item.type == "message" and item.role != "assistant":
            messages.append({"role": item.role, "content": text_of(item.content)})
        else:
            _add_to_assistant(messages, item)
    return messages


def _instructs(item: InputItem) -> bool:
    return item.type == "message" and item.role in ("system", "developer")


def _instructions(instructions: str | None, leading: list[InputItem]) -> list[Message]:
    """As one message: many templates take no second one."""
    told = [instructions, *(text_of(item.content) for item in leading)]
    content = "\n\n".join(text for text in told if text)
    role = leading[0].role if leading else "system"
    return [{"role": role, "content": content}] if content else []


def _check(item: InputItem, where: str) -> None:
    for name in NEEDED[item.type]:
        if getattr(item, name) is None:
            raise bad_request(f"'{where}.{name}' is missing", f"{where}.{name}", "missing_required_parameter")


def _add_to_assistant(messages: list[Message], item: InputItem) -> None:
    last = messages[-1] if messages else None
    said = item.type == "message" or item.type == "reasoning"
    if last is None or last["role"] != "assistant" or (said and (last["content"] or "tool_calls" in last)):
        last = {"role": "assistant", "content": ""}
        messages.append(last)
    if item.type == "message":
        last["content"] = text_of(item.content)
    elif item.type == "reasoning":
        last["reasoning_content"] = text_of(item.content) or text_of(item.summary)  # type: ignore[arg-type]
    else:
        function = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "type": "function", "function": function}
        last.setdefault("tool_calls", []).append(call)


def text_of(content: str | list[schema.InputPart] | list[schema.InputText] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.refusal if isinstance(part, schema.Refusal) else part.text for part in content)
