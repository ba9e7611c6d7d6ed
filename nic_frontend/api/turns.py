"""A conversation in Anthropic's form as messages of chats."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby, takewhile

from nic_frontend.api.conversation import Message
from nic_frontend.api.schema import messages as schema
from nic_frontend.api.schema.messages import Block, CountRequest, Turn
from nic_frontend.errors import bad_request

ALLOWED: dict[str, tuple[type[Block], ...]] = {
    "system": (schema.TextBlock,),
    "user": (schema.TextBlock, schema.ToolResultBlock),
    "assistant": (
        schema.TextBlock,
        schema.ThinkingBlock,
        schema.RedactedThinkingBlock,
        schema.ToolUseBlock,
    ),
}
THINKING = schema.ThinkingBlock, schema.RedactedThinkingBlock
BILLING = "x-anthropic-billing-header:"  # with which the system may begin


def messages_of(request: CountRequest) -> list[Message]:
    """The system's first turns join `system`, its later ones stay behind what the user says and tools return,
    and what one role says in a row becomes one message. Raises ApiError 400 for blocks that a role does not
    have.
    """
    for index, turn in enumerate(request.messages):
        _check(turn, f"messages[{index}]")
    leading = list(takewhile(lambda turn: turn.role == "system", request.messages))
    told = [request.system, *(turn.content for turn in leading)]
    system = "\n\n".join(text for content in told if (text := _unbilled(text_of(content))))  # type: ignore[arg-type]
    messages: list[Message] = [{"role": "system", "content": system}] if system else []
    later = request.messages[len(leading) :]
    for assistant, turns in groupby(later, lambda turn: turn.role == "assistant"):
        messages += (_assistant if assistant else _user)(turns)
    return messages


def check_last(request: CountRequest) -> None:
    """Raises ApiError 400 where the last message is the assistant's and cannot be continued, by Anthropic's
    rules.
    """
    last, where = request.messages[-1], f"messages[{len(request.messages) - 1}]"
    if last.role != "assistant":
        return
    blocks = _blocks(last)
    ends = blocks[-1] if blocks else None
    if _calls_last(request):
        raise _not_continued(where, "has a 'tool_use', whose 'tool_result' has to follow")
    if isinstance(ends, THINKING):
        raise _not_continued(where, "ends with thinking; a text has to stand behind it")
    if isinstance(ends, schema.TextBlock) and ends.text != ends.text.rstrip():
        raise _not_continued(where, "ends with whitespace, behind which models continue badly; leave it out")
    thinks = request.thinking is not None and request.thinking.type != "disabled"
    if thinks and not (blocks and isinstance(blocks[0], THINKING)):
        raise _not_continued(where, "begins without the thinking that 'thinking' asks for")


def _calls_last(request: CountRequest) -> bool:
    """Whether the assistant's last turns, which become one message, have a call."""
    turns = takewhile(lambda turn: turn.role == "assistant", reversed(request.messages))
    return any(isinstance(block, schema.ToolUseBlock) for turn in turns for block in _blocks(turn))


def _not_continued(where: str, why: str) -> Exception:
    return bad_request(f"'{where}' is the assistant's and the last one, but it {why}", where, "invalid_value")


def _check(turn: Turn, where: str) -> None:
    if isinstance(turn.content, str):
        return
    if not all(isinstance(block, ALLOWED[turn.role]) for block in turn.content):
        raise bad_request(
            f"'{where}.content' has a block that messages of the {turn.role} do not have",
            f"{where}.content",
            "invalid_value",
        )


def _unbilled(system: str) -> str:
    """Without the line that Claude Code begins with for Anthropic's billing: it differs from request to
    request, so no prompt would begin as a cached one does.
    """
    return system.partition("\n")[2].lstrip("\n") if system.startswith(BILLING) else system


def text_of(content: str | list[schema.TextBlock] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block.text for block in content)


def _blocks(turn: Turn) -> list[Block]:
    return [schema.TextBlock(turn.content)] if isinstance(turn.content, str) else turn.content


def _user(turns: Iterator[Turn]) -> list[Message]:
    """Results of tools come right behind the calls, before what else is said."""
    results: list[Message] = []
    said: list[tuple[str, list[str]]] = []  # a role, and what it says in a row
    for turn in turns:
        texts = []
        for block in _blocks(turn):
            if isinstance(block, schema.ToolResultBlock):
                results.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": _result(block)})
            elif isinstance(block, schema.TextBlock):
                texts.append(block)
        content = text_of(texts)
        if content and said and said[-1][0] == turn.role:
            said[-1][1].append(content)
        elif content:
            said.append((turn.role, [content]))
    messages = [{"role": role, "content": "\n".join(texts)} for role, texts in said]
    return [*results, *messages] or [{"role": "user", "content": ""}]


def _result(block: schema.ToolResultBlock) -> str:
    """Templates know of no failures of tools, so the text says so."""
    text = text_of(block.content)
    if not block.is_error:
        return text
    return f"Error: {text}" if text else "Error"


def _assistant(turns: Iterator[Turn]) -> list[Message]:
    said, thought, calls = [], [], []
    for turn in turns:
        blocks = _blocks(turn)
        said.append("".join(block.text for block in blocks if isinstance(block, schema.TextBlock)))
        thought.append("".join(block.thinking for block in blocks if isinstance(block, schema.ThinkingBlock)))
        calls += [_call(block) for block in blocks if isinstance(block, schema.ToolUseBlock)]
    message: Message = {"role": "assistant", "content": "\n".join(text for text in said if text)}
    if reasoning := "\n".join(text for text in thought if text):
        message["reasoning_content"] = reasoning
    return [{**message, "tool_calls": calls} if calls else message]


def _call(block: schema.ToolUseBlock) -> Message:
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": block.input}}
