"""Messages, tools and the request of /v1/chat/completions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nic_frontend.api.schema.generation import Generation, Likeliest, Tokens
from nic_frontend.api.schema.rows import Row
from ringbuffer import abi

MAX_ALLOWED = 128  # tools that a `tool_choice` names
NAME = r"^[a-zA-Z0-9_.-]{1,128}$"


class TextPart(Struct, tag_field="type", tag="text"):
    text: str


class RefusalPart(Struct, tag_field="type", tag="refusal"):
    refusal: str


Content = str | list[TextPart]


class FunctionCall(Struct):
    name: str
    arguments: Annotated[str, Meta(description="A JSON object, written as a string.")]


class ToolCall(Struct):
    id: str
    function: FunctionCall
    type: Literal["function"] = "function"


class SystemMessage(Struct, tag_field="role", tag="system"):
    content: Content


class DeveloperMessage(Struct, tag_field="role", tag="developer"):
    content: Content


class UserMessage(Struct, tag_field="role", tag="user"):
    content: Content


class AssistantMessage(Struct, tag_field="role", tag="assistant"):
    content: str | list[TextPart | RefusalPart] | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(Struct, tag_field="role", tag="tool"):
    content: Content
    tool_call_id: str


class FunctionMessage(Struct, tag_field="role", tag="function"):
    """A result as OpenAI had them before there were tools."""

    content: Content | None
    name: str


Message = SystemMessage | DeveloperMessage | UserMessage | AssistantMessage | ToolMessage | FunctionMessage


class FunctionDefinition(Struct):
    name: Annotated[str, Meta(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Tool(Struct):
    function: FunctionDefinition
    type: Literal["function"] = "function"


class NamedFunction(Struct):
    name: str


class NamedChoice(Struct, tag_field="type", tag="function"):
    function: NamedFunction


class AllowedTools(Struct):
    mode: Literal["auto", "required"]
    tools: Annotated[list[NamedChoice], Meta(max_length=MAX_ALLOWED)]


class AllowedChoice(Struct, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedTools


ToolChoice = Literal["none", "auto", "required"] | NamedChoice | AllowedChoice
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ThinkingBudget = Annotated[int, Meta(ge=-1, le=abi.MAX_COUNT, description="-1: no limit.")]


Messages = Annotated[list[Message], Meta(min_length=1)]


class ChatRequest(Generation, kw_only=True):
    messages: Messages
    max_completion_tokens: Annotated[Tokens | None, Row()] = None
    tools: Annotated[list[Tool] | None, Row(([],))] = None
    tool_choice: Annotated[ToolChoice | None, Row(("none", "auto"))] = None
    parallel_tool_calls: Annotated[bool | None, Row((True,))] = None
    reasoning_effort: Annotated[Effort | None, Row()] = None
    include_reasoning: Annotated[bool | None, Row((True,))] = None
    thinking_token_budget: Annotated[ThinkingBudget | None, Row((-1,))] = None
    logprobs: Annotated[bool | None, Row((False,))] = None
    top_logprobs: Annotated[Likeliest | None, Row((0,))] = None
    add_generation_prompt: Annotated[bool | None, Row((True,))] = None
    continue_final_message: (
        Annotated[
            bool,
            Meta(description="The answer continues the last message, which is the assistant's."),
            Row((False,)),
        ]
        | None
    ) = None
    echo: (
        Annotated[
            bool,
            Meta(description="The content begins with that of the last message, if it is the assistant's."),
            Row((False,)),
        ]
        | None
    ) = None
    chat_template_kwargs: dict[str, Any] | None = None
