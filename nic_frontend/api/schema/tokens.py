"""The requests of /tokenize and /detokenize, with the names of vLLM's."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from nic_frontend.api.schema.chat import Messages, Tool


class TokenizeRequest(Struct, kw_only=True):
    """Of a prompt, or of messages through the model's chat template."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    return_token_strs: bool | None = None
    tools: list[Tool] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeRequest(Struct, kw_only=True):
    tokens: list[Annotated[int, Meta(ge=0)]]
    model: str | None = None
