"""The items of an input to /v1/responses, as messages of chats."""

from __future__ import annotations

from itertools import takewhile

from nic_frontend.api.conversation import Message
from nic_frontend.api.schema.responses import InputItem, InputPart, InputText, Refusal
from nic_frontend.errors import bad_request

NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
    "item_reference": ("id",),
    "additional_tools": ("tools",),
}


def check_items(items: list[InputItem]) -> None:
    """Raises ApiError 400 for an item of the request that lacks something."""
    for i, item in enumerate(items):
        for name in NEEDED[item.type]:
            if getattr(item, name) is None:
                where = f"input[{i}].{name}"
                raise bad_request(f"'{where}' is missing", where, "missing_required_parameter")


def messages_of(instructions: str | None, items: list[InputItem]) -> list[Message]:
    """In the form of chats. What an assistant thought, said and called in a row is one message."""
    items = [item for item in items if item.type != "additional_tools"]
    leading = list(takewhile(_instructs, items))
    messages = _instructions(instructions, leading)
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


def text_of(content: str | list[InputPart] | list[InputText] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.refusal if isinstance(part, Refusal) else part.text for part in content)
