"""The request of /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from nic_frontend.api.schema.chat import MAX_ALLOWED, Effort, FunctionDefinition
from nic_frontend.api.schema.generation import (
    Likeliest,
    ModelSampling,
    Priority,
    ProcessorArgs,
    ProcessorNames,
    Salt,
    Seed,
    Stop,
    Stops,
    Tokens,
)
from nic_frontend.api.schema.structure import Schema


class InputText(Struct, tag_field="type", tag="input_text"):
    text: str


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str


class SummaryText(Struct, tag_field="type", tag="summary_text"):
    text: str


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class Refusal(Struct, tag_field="type", tag="refusal"):
    refusal: str


InputPart = InputText | OutputText | SummaryText | ReasoningText | Refusal


# What `include` may name.
LOGPROBS = "message.output_text.logprobs"
SEALED = "reasoning.encrypted_content"

ID = r"^[!-~]{1,256}$"
Id = Annotated[str, Meta(pattern=ID)]
Tool = Annotated[
    dict[str, Any],
    Meta(description="With `type`, `name`, `description`, `parameters`, `strict`. Functions alone are used."),
]


# As at OpenAI: metadata come back with each answer, and are stored with it.
MOST_METADATA, LONGEST_NAME, LONGEST_VALUE = 16, 64, 512
Metadata = Annotated[
    dict[str, str],
    Meta(
        max_length=MOST_METADATA,
        description=f"Names of up to {LONGEST_NAME} characters, with values of up to {LONGEST_VALUE}.",
    ),
]


class InputItem(Struct, kw_only=True):
    """A message, a call, the result of one, what was thought, a stored item's id, or tools. Its type decides
    which fields it needs.
    """

    type: Literal[
        "message",
        "function_call",
        "function_call_output",
        "reasoning",
        "item_reference",
        "additional_tools",
    ] = "message"
    id: str | None = None
    role: Literal["user", "system", "developer", "assistant"] | None = None
    status: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputText] | None = None
    summary: list[SummaryText] | None = None
    encrypted_content: str | None = None
    tools: list[Tool] | None = None


class FunctionTool(FunctionDefinition):
    type: Literal["function"] = "function"


class FunctionChoice(Struct, tag_field="type", tag="function"):
    name: str


class AllowedChoice(Struct, tag_field="type", tag="allowed_tools"):
    mode: Literal["auto", "required"]
    tools: Annotated[list[Tool], Meta(max_length=MAX_ALLOWED)]


class Reasoning(Struct):
    effort: Effort | None = None


class Format(Struct):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: Schema | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(Struct):
    format: Format | None = None


class ResponsesRequest(ModelSampling, kw_only=True):
    input: str | Annotated[list[InputItem], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    stream: bool | None = None
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | FunctionChoice | AllowedChoice | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Reasoning | None = None
    text: TextOptions | None = None
    truncation: Literal["auto", "disabled"] | None = None
    store: bool | None = None
    previous_response_id: Id | None = None
    background: bool | None = None
    metadata: Metadata | None = None
    include: list[str] | None = None
    top_logprobs: Likeliest | None = None
    seed: Seed | None = None
    stop: Stop | Stops | None = None
    cache_salt: Salt | None = None
    priority: Priority | None = None
    logits_processors: ProcessorNames | None = None
    logits_processor_args: ProcessorArgs | None = None
    chat_template_kwargs: dict[str, Any] | None = None
