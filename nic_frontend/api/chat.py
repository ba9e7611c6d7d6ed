"""/v1/chat/completions."""

from __future__ import annotations

import asyncio
from typing import Any

from nic_frontend.api.answer import Answer
from nic_frontend.api.constraint import chosen
from nic_frontend.api.continuation import end_of
from nic_frontend.api.controls import controls_of
from nic_frontend.api.conversation import (
    Conversation,
    check_length,
    for_template,
    options_of,
    prompt_of,
    shown_tools,
    tools_for_template,
)
from nic_frontend.api.fields import with_typed_choice
from nic_frontend.api.job import Job
from nic_frontend.api.notes import on_fields, refuse_unsupported
from nic_frontend.api.parameters import check_streams_no_prompt_logprobs, parse
from nic_frontend.api.schema.chat import AllowedChoice, ChatRequest, NamedChoice, ToolChoice
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.served import Served
from nic_frontend.api.split_answer import SplitAnswer
from nic_frontend.api.structure import content_of
from nic_frontend.api.text_answer import TextAnswer
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function


async def parse_chat(body: dict[str, Any], served: Served, *, cuts_answer: bool = False) -> Job:
    """`cuts_answer` is as of Parameters."""
    refuse_unsupported(body, ChatRequest)
    check_length(body.get("messages"), served.limits)
    body = with_typed_choice(body)
    request = checked(body, ChatRequest)
    await asyncio.sleep(0)  # other calls' turn: there may be many messages and tools
    fields = ("max_completion_tokens", "max_tokens")
    field = next((name for name in fields if getattr(request, name) is not None), fields[0])
    check_streams_no_prompt_logprobs(request)
    parameters = parse(
        request,
        served.limits,
        max_tokens=getattr(request, field),
        max_tokens_field=field,
        cuts_answer=cuts_answer,
        logprobs=_told(request),
        prompt_logprobs=request.prompt_logprobs,
        controls=await controls_of(request, served),
    )
    served.limits.check_choices(1, parameters.n, "messages")
    kind, names = choice_of(request.tool_choice)
    one_call = request.parallel_tool_calls is False or isinstance(request.tool_choice, NamedChoice)
    constraint = chosen(functions_of(request), kind, names, one_call, content_of(request))
    talk = Conversation(
        messages=await for_template(body["messages"]),
        tools=shown_tools(tools_for_template(body.get("tools") or []), constraint),
        constraint=constraint,
        one_call=not constraint.many,
        effort=request.reasoning_effort,
        budget=None if request.thinking_token_budget == -1 else request.thinking_token_budget,
        options=options_of(request.chat_template_kwargs),
        end=end_of(request),
        special=bool(request.add_special_tokens),
    )
    prompt = await prompt_of(talk, served)
    warnings = [*on_fields(body, ChatRequest), *prompt.warnings]
    texts = served.texts(by_id=request.return_tokens_as_token_ids)
    last = talk.messages[-1]
    echo = last["content"] if request.echo and last["role"] == "assistant" else ""
    answer: Answer
    if prompt.is_text:
        answer = TextAnswer(True, served.name, parameters, [echo] * parameters.n, texts)
    else:
        splitters = [prompt.splitter() for _ in range(parameters.n)]
        hides = request.include_reasoning is False
        answer = SplitAnswer(served.name, parameters, splitters, texts, echo=echo, hides_reasoning=hides)
    tokens = parameters.truncated(prompt.tokens, served.limits)
    grammars = prompt.grammars
    return Job(parameters, [tokens], "messages", answer, prompt.shown, prompt.conclusion, grammars, warnings)


def _told(request: ChatRequest) -> int | None:
    """How many of the likeliest tokens are to be told beside each of the answer's. Raises ApiError 400."""
    if request.logprobs:
        return request.top_logprobs or 0
    if request.top_logprobs:
        raise bad_request("'top_logprobs' needs 'logprobs': true", "top_logprobs", "invalid_value")
    return None


def functions_of(request: ChatRequest) -> list[Function]:
    tools = (tool.function for tool in request.tools or ())
    return [Function(tool.name, tool.parameters, bool(tool.strict)) for tool in tools]


def choice_of(choice: ToolChoice | None) -> tuple[str, list[str] | None]:
    """`tool_choice` as a kind and the tools' names, where it has some."""
    if isinstance(choice, NamedChoice):
        return "required", [choice.function.name]
    if isinstance(choice, AllowedChoice):
        allowed = choice.allowed_tools
        return allowed.mode, [tool.function.name for tool in allowed.tools]
    return choice or "auto", None
