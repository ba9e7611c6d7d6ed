"""Which orders of roles a chat template takes. OpenAI takes any, and agents make use of it: they send several
messages of the system, also later ones, and several of the user in a row. Many a template refuses these, or
drops some without a word, so each is tried on small conversations when it is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nic_frontend.tools_in_templates import QUESTION, TOOL, Message, Render, ToolForms, talk

APART = "\n\n"  # between texts that become one message


@dataclass(frozen=True)
class RoleForms:
    """What the template shows as it is. The rest is written in another way, and nothing is lost."""

    alone: bool  # the system without a user
    systems: bool  # several messages of the system, where they stand
    repeated: bool  # one role speaks twice in a row
    behind_results: bool  # the user speaks right behind results of tools

    def apply(self, messages: list[Message]) -> list[Message]:
        """The messages as the template takes them. A text that cannot be a message of its own is added to the
        message before it: so a conversation that goes on begins as the shorter one did, and is found in the
        prefix cache.
        """
        if self == TAKES_ALL:
            return messages
        written: list[Message] = []
        for message in messages:
            last = written[-1] if written else None
            if last is not None and self._joins(last, message):
                written[-1] = _joined(last, message)
            elif message["role"] == "system" and last is not None and not self.systems:
                written.append({**message, "role": "user"})
            else:
                written.append(message)
        if not self.alone and [message["role"] for message in written] == ["system"]:
            return [{**written[0], "role": "user"}]
        return written

    def _joins(self, last: Message, message: Message) -> bool:
        before, role = str(last["role"]), str(message["role"])
        if role == "system" and not self.systems:
            return before != "assistant"
        if before == role == "user":
            return not self.repeated
        if before == role == "assistant":
            return not (self.repeated or last.get("tool_calls") or message.get("tool_calls"))
        return before == "tool" and role == "user" and not self.behind_results


TAKES_ALL = RoleForms(alone=True, systems=True, repeated=True, behind_results=True)


def _joined(first: Message, second: Message) -> Message:
    joined = {**second, **first}
    for name in ("content", "reasoning_content"):
        if texts := [message[name] for message in (first, second) if message.get(name)]:
            joined[name] = APART.join(texts)
    return joined


def probe(render: Render, tools: ToolForms) -> RoleForms:
    """Tries a template, of which `tools` are known. `render` is as for tools_in_templates.probe."""
    return RoleForms(
        alone=_shows(render, "system"),
        systems=_shows(render, "system", "system", "user", "assistant", "system", "user"),
        repeated=_shows(render, "user", "user", "assistant", "assistant", "user"),
        behind_results=_shows_behind_results(render, tools),
    )


def _shows(render: Render, *roles: str) -> bool:
    """Whether messages of these roles are shown, one behind the other."""
    messages: list[Message] = [{"role": role, "content": f"probe_{n}"} for n, role in enumerate(roles)]
    return _in_order(lambda: render(messages, None, True, {}), messages)


def _shows_behind_results(render: Render, tools: ToolForms) -> bool:
    if tools.calls is None or not tools.calls.results:
        return True  # there are no results
    given = [TOOL] if tools.tools == "variable" else None
    more = [{**QUESTION, "content": "probe_more"}]
    messages = [*talk(tools.calls, ""), *more]
    return _in_order(lambda: render(messages, given, True, {}), more)


def _in_order(rendered: Callable[[], str], messages: list[Message]) -> bool:
    try:
        text = rendered()
    except Exception:  # it refuses them, which is an answer
        return False
    places = [text.find(message["content"]) for message in messages]
    return -1 not in places and places == sorted(places)
