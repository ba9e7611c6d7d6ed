"""What a chat template makes of tools, of calls and of their results. Templates differ, and one that does not
know them drops them without a word, so each is tried on a small conversation when it is loaded.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from dataclasses import dataclass

from nic_frontend.errors import bad_request
from nic_frontend.templates.trial import QUESTION, Message, Trial, said

CALLED_NAME = "probe_call"
ARGUMENTS = {"probe_key": "probe_value"}
CALLED = (CALLED_NAME, "probe_key", "probe_value")
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
    """`in_system`: the template takes tools as JSON in the system's message, not as a variable. Without
    `calls` it shows none.
    """

    in_system: bool
    calls: CallForm | None

    def apply(self, messages: list[Message]) -> list[Message]:
        """Messages as the template takes them; arguments of calls are objects. Raises ApiError 400 for
        what it would not show.
        """
        return [
            shown for i, message in enumerate(messages) for shown in self._messages(message, f"messages[{i}]")
        ]

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


def with_tools_in_system(messages: list[Message], tools: list[Message]) -> list[Message]:
    """The messages with the tools in the first one, which is the system's."""
    text = json.dumps([tool["function"] for tool in tools], ensure_ascii=False)
    if messages and messages[0]["role"] == "system":
        return [{**messages[0], "tools": text}, *messages[1:]]
    return [{"role": "system", "content": "", "tools": text}, *messages]


def shows_tools(trial: Trial) -> bool:
    text = trial.text(QUESTION)
    return text is not None and "probe_tool" in text and str(QUESTION["content"]) in text


def probe(trial: Trial) -> CallForm | None:
    """How the template shows calls; None where it does not."""
    without_calls = trial.text(QUESTION) or ""

    def shows(messages: list[Message], *expected: str) -> bool:
        text = trial.text(*messages)
        if text is None:
            return False
        unparsed = ("{'probe_key'", '\\"probe_key', "None")  # Python's own form, and JSON in JSON
        return all(item in text for item in expected) and not any(
            text.count(item) > without_calls.count(item) for item in unparsed
        )

    for short_ids, parsed, empty in itertools.product((False, True), (True, False), ("", None)):
        form = CallForm(parsed, empty, short_ids, True, False, False)
        if shows(talk(form, ""), *CALLED):
            break
    else:
        return None
    goes_on = said("assistant", "user")

    def shows_text(form: CallForm, *more: Message) -> bool:
        return shows([*talk(form, "probe_text"), *more], "probe_text", *CALLED)

    form = dataclasses.replace(form, results=shows(talk(form, ""), "probe_result"))
    apart = dataclasses.replace(form, beside_text=False)
    beside, behind = shows_text(form), shows_text(apart)
    if beside and behind and not shows_text(form, *goes_on) and shows_text(apart, *goes_on):
        beside = False  # it is shown until the turn is over
    return dataclasses.replace(form, beside_text=beside, behind_text=behind)


def talk(form: CallForm, text: str) -> list[Message]:
    """A question, a call and its result."""
    call_id = SHORT_ID if form.short_ids else LONG_ID
    call = {"id": call_id, "type": "function", "function": {"name": CALLED_NAME, "arguments": ARGUMENTS}}
    calling = {"role": "assistant", "content": text, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": call_id, "name": CALLED_NAME, "content": "probe_result"}
    return [QUESTION, *form.messages(calling), result]
