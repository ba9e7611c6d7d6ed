"""Where prompts of chats end: `add_generation_prompt` and `continue_final_message`, as in transformers."""

from __future__ import annotations

from nic_frontend.api.schema.chat import AssistantMessage, ChatRequest
from nic_frontend.api.schema.tokens import TokenizeRequest
from nic_frontend.errors import bad_request
from nic_frontend.templates.prompt_end import PromptEnd


def end_of(request: ChatRequest | TokenizeRequest) -> PromptEnd:
    """Raises ApiError 400 where the last message cannot be continued."""
    if not request.continue_final_message:
        return PromptEnd.CLOSED if request.add_generation_prompt is False else PromptEnd.ANSWER
    if request.add_generation_prompt:
        raise _refused("excludes 'add_generation_prompt', which begins another message")
    messages = request.messages or []
    last, where = messages[-1], f"'messages[{len(messages) - 1}]'"
    if not isinstance(last, AssistantMessage):
        role = last.__struct_config__.tag
        raise _refused(f"needs a message of the assistant at the end, but {where} has the role {role!r}")
    if last.tool_calls or last.function_call:
        raise _refused(f"continues a text, but {where} ends with calls of tools")
    if last.content is None and last.refusal is None:
        raise _refused(f'continues a text, but {where} has no content; "" is one')
    return PromptEnd.WITHIN


def _refused(why: str) -> Exception:
    return bad_request(f"'continue_final_message' {why}", "continue_final_message", "invalid_value")
