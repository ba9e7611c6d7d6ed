"""The requests of /v1/messages and /v1/messages/count_tokens, as Anthropic defines them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nic_frontend.api.schema.chat import NAME, Effort
from nic_frontend.api.schema.generation import ModelSampling, Salt, Seed, Stops, Tokens
from nic_frontend.api.schema.structure import Schema


class TextBlock(Struct, tag_field="type", tag="text"):
    text: str


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str | None = None


class RedactedThinkingBlock(Struct, tag_field="type", tag="redacted_thinking"):
    data: str | None = None


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Struct, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock] | None = None
    is_error: bool | None = None


Block = TextBlock | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock


class Turn(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class CustomTool(Struct):
    name: Annotated[str, Meta(pattern=NAME)]
    input_schema: dict[str, Any]
    description: str | None = None
    type: Literal["custom"] | None = None
    strict: bool | None = None


class Choice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1)] | None = None


class OutputFormat(Struct):
    schema: Schema
    type: Literal["json_schema"] = "json_schema"


class OutputConfig(Struct):
    format: OutputFormat | None = None
    effort: Effort | None = None


class CountRequest(ModelSampling, kw_only=True):
    """What a prompt is made of."""

    messages: Annotated[list[Turn], Meta(min_length=1)]
    model: str | None = None
    system: str | list[TextBlock] | None = None
    tools: list[CustomTool] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None
    output_format: OutputFormat | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountRequest, kw_only=True):
    max_tokens: Tokens
    stream: bool | None = None
    stop_sequences: Stops | None = None
    seed: Seed | None = None
    cache_salt: Salt | None = None
