"""/v1/messages: the job that such a request becomes, and how many tokens its prompt has."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from nic_frontend.api.constraint import chosen
from nic_frontend.api.conversation import (
    Conversation,
    Message,
    Prompt,
    for_template,
    options_of,
    prompt_of,
    shown_tools,
)
from nic_frontend.api.job import Job
from nic_frontend.api.messages_answer import MessagesAnswer
from nic_frontend.api.notes import on_fields, refuse_unsupported
from nic_frontend.api.parameters import parse
from nic_frontend.api.schema import messages as schema
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.generation import in_common
from nic_frontend.api.schema.messages import CountRequest, MessagesRequest
from nic_frontend.api.served import Served
from nic_frontend.api.turns import check_last, messages_of
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.content import Content
from nic_frontend.templates.prompt_end import PromptEnd

T = TypeVar("T", bound=CountRequest)


async def parse_messages(body: dict[str, Any], served: Served) -> Job:
    request = _checked(body, MessagesRequest, served)
    check_last(request)
    prompt = await _prompt(request, served, PromptEnd.WITHIN)
    room = served.limits.max_answer(len(prompt.tokens), "messages")
    parameters = parse(
        in_common(request, stop=request.stop_sequences),
        served.limits,
        max_tokens=min(request.max_tokens, room),  # clients have to ask for some, and do not know the context
        max_tokens_field="max_tokens",
        stop_field="stop_sequences",
    )
    splitter = prompt.splitter()
    warnings = [*on_fields(body, MessagesRequest), *prompt.warnings]
    answer = MessagesAnswer(served.name, splitter, fills_context=request.max_tokens > room)
    shown, conclusion, grammars = prompt.shown, prompt.conclusion, prompt.grammars
    return Job(parameters, [prompt.tokens], "messages", answer, shown, conclusion, grammars, warnings)


async def count_tokens(body: dict[str, Any], served: Served) -> dict[str, Any]:
    """/v1/messages/count_tokens."""
    prompt = await _prompt(_checked(body, CountRequest, served), served, PromptEnd.CLOSED)
    return {"input_tokens": len(prompt.tokens)}


def _checked(body: dict[str, Any], model: type[T], served: Served) -> T:
    refuse_unsupported(body, MessagesRequest)
    if isinstance(body.get("messages"), list) and body["messages"]:
        served.limits.max_answer(len(body["messages"]), "messages")
    return checked(body, model)


async def _prompt(request: CountRequest, served: Served, last: PromptEnd) -> Prompt:
    """`last`: where it ends if the last message is the assistant's."""
    await asyncio.sleep(0)  # other calls' turn: there may be many messages and tools
    functions = [Function(tool.name, tool.input_schema, bool(tool.strict)) for tool in request.tools or ()]
    kind, names = _choice(request.tool_choice)
    one_call = bool(names or (request.tool_choice and request.tool_choice.disable_parallel_tool_use))
    constraint = chosen(functions, kind, names, one_call, _content(request))
    talk = Conversation(
        messages=await for_template(messages_of(request)),
        tools=shown_tools([_tool(tool) for tool in request.tools or ()], constraint),
        constraint=constraint,
        one_call=not constraint.many,
        effort=request.output_config.effort if request.output_config else None,
        effort_param="output_config.effort",
        thinks=request.thinking.type != "disabled" if request.thinking else None,
        options=options_of(request.chat_template_kwargs),
        end=last if request.messages[-1].role == "assistant" else PromptEnd.ANSWER,
    )
    if request.thinking is not None and served.forms.finds_reasoning:
        talk.budget = request.thinking.budget_tokens
    return await prompt_of(talk, served)


def _choice(choice: schema.Choice | None) -> tuple[str, list[str] | None]:
    """As a kind in OpenAI's words, and the tool's name where it has one. Raises ApiError 400 where that is
    missing.
    """
    if choice is None:
        return "auto", None
    if choice.type == "tool":
        if choice.name is None:
            name = "tool_choice.name"
            raise bad_request(f"'{name}' is missing", name, "missing_required_parameter")
        return "required", [choice.name]
    return {"any": "required"}.get(choice.type, choice.type), None


def _content(request: CountRequest) -> Content | None:
    config = request.output_config
    wanted = [
        (found, param)
        for found, param in (
            (request.output_format, "output_format"),
            (config.format if config else None, "output_config.format"),
        )
        if found is not None
    ]
    if len(wanted) > 1:
        raise bad_request("'output_format' and 'output_config.format' exclude each other", wanted[1][1])
    return Content("json", wanted[0][0].schema, wanted[0][1]) if wanted else None


def _tool(tool: schema.CustomTool) -> Message:
    described = {"description": tool.description} if tool.description is not None else {}
    return {"type": "function", "function": {"name": tool.name, **described, "parameters": tool.input_schema}}
