"""What a chat template makes of tools, of calls and of their results. Templates differ, and one that does not
know them drops them without a word, so each is tried on a small conversation when it is loaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nic_frontend.errors import bad_request

Message = dict[str, Any]
Render = Callable[[list[Message], list[Message] | None, bool, dict[str, Any]], str]

QUESTION: Message = {"role": "user", "content": "question"}
TOOL: Message = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
ARGUMENTS = {"probe_key": "probe_value"}
CALLED = ("probe_call", "probe_key", "probe_value")
SHORT_ID = "a1b2c3d4e"  # Mistral's templates take nothing else
LONG_ID = "call_0123456789abcdef01234567"


@dataclass(frozen=True)
class CallForm:
    """How an assistant's calls have to be written for the template to show them."""

    parsed: bool  # arguments as an object, not as JSON
    empty: str | None  # the content where there is none
    short_ids: bool
    beside_text: bool  # they are shown in a message with content, too
    behind_text: bool  # or in one of their own behind it
    results: bool  # messages of the role "tool" are shown

    def messages(self, message: Message) -> list[Message]:
        """An assistant's message with calls."""
        calls = [self._call(call) for call in message["tool_calls"]]
        if not message["content"] or self.beside_text:
            return [{**message, "content": message["content"] or self.empty, "tool_calls": calls}]
        said = {name: value for name, value in message.items() if name != "tool_calls"}
        return [said, {"role": message["role"], "content": self.empty, "tool_calls": calls}]

    def _call(self, call: Message) -> Message:
        arguments = call["function"]["arguments"]
        shown = arguments if self.parsed else json.dumps(arguments, ensure_ascii=False)
        return {**call, "id": self.call_id(call["id"]), "function": {**call["function"], "arguments": shown}}

    def call_id(self, name: str) -> str:
        """Ids of another form are hashed to one of nine letters and digits."""
        if not self.short_ids or (len(name) == len(SHORT_ID) and name.isascii() and name.isalnum()):
            return name
        return hashlib.sha256(name.encode(errors="replace")).hexdigest()[: len(SHORT_ID)]


@dataclass(frozen=True)
class ToolForms:
    """`tools` says where the template takes them: "variable", "system" (as JSON in the system message) or,
    where it knows none, "".
    """

    tools: str
    calls: CallForm | None

    def apply(
        self, messages: list[Message], tools: list[Message] | None
    ) -> tuple[list[Message], list[Message] | None]:
        """Messages and tools as the template takes them; arguments of calls are objects. Raises ApiError 400
        for what it would not show.
        """
        if tools and not self.tools:
            raise bad_request(
                "the chat template of this model knows no tools", "tools", "unsupported_parameter"
            )
        messages = [
            shown for i, message in enumerate(messages) for shown in self._messages(message, f"messages[{i}]")
        ]
        if tools and self.tools == "system":
            return _told(messages, tools), tools
        return messages, tools

    def _messages(self, message: Message, where: str) -> list[Message]:
        form = self.calls
        if message.get("tool_calls"):
            if form is None:
                raise _unknown("calls of tools", f"{where}.tool_calls")
            if message["content"] and not (form.beside_text or form.behind_text):
                raise _unknown("text beside calls of tools", f"{where}.content")
            return form.messages(message)
        if message["role"] == "tool":
            if form is None or not form.results:
                raise _unknown("results of tools", where)
            return [{**message, "tool_call_id": form.call_id(message["tool_call_id"])}]
        return [message]


def _unknown(what: str, where: str) -> Exception:
    return bad_request(
        f"the chat template of this model does not show {what}, so '{where}' would be lost",
        where,
        "unsupported_parameter",
    )


def _told(messages: list[Message], tools: list[Message]) -> list[Message]:
    """The messages with the tools in the first one, which is the system's."""
    text = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if messages[0]["role"] == "system":
        return [{**messages[0], "tools": text}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": text}, *messages]


def probe(render: Render) -> ToolForms:
    """Tries a template. `render` takes messages, tools, add_generation_prompt and further variables."""

    def shows(messages: list[Message], tools: list[Message] | None, *expected: str) -> bool:
        try:
            text = render(messages, tools, True, {})
        except Exception:  # it refuses them, which is an answer
            return False
        unparsed = ("{'probe_key'", '\\"probe_key', "None")  # Python's own form, and JSON in JSON
        return all(item in text for item in expected) and not any(item in text for item in unparsed)

    where = ""
    if shows([QUESTION], [TOOL], "probe_tool"):
        where = "variable"
    elif shows(_told([QUESTION], [TOOL]), [TOOL], "probe_tool"):
        where = "system"

    given = [TOOL] if where == "variable" else None
    for short_ids, parsed, empty in itertools.product((False, True), (True, False), ("", None)):
        form = CallForm(parsed, empty, short_ids, True, False, False)
        if shows(talk(form, ""), given, *CALLED):
            break
    else:
        return ToolForms(where, None)
    results = shows(talk(form, ""), given, "probe_result")
    beside = shows(talk(form, "probe_text"), given, "probe_text", *CALLED)
    form = dataclasses.replace(form, beside_text=beside, results=results)
    behind = shows(talk(form, "probe_text"), given, "probe_text", *CALLED)
    return ToolForms(where, dataclasses.replace(form, behind_text=behind))


def talk(form: CallForm, text: str) -> list[Message]:
    """A question, a call and its result."""
    call_id = SHORT_ID if form.short_ids else LONG_ID
    call = {"id": call_id, "type": "function", "function": {"name": "probe_call", "arguments": ARGUMENTS}}
    calling = {"role": "assistant", "content": text, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call_id, "name": "probe_call", "content": "probe_result"}
    return [QUESTION, *form.messages(calling), result]
