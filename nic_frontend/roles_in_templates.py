"""Which orders of roles a chat template takes. OpenAI takes any, and agents make use of it: they send several
messages of the system, also later ones, and several of the user in a row. Many a template refuses these, or
drops some without a word, so each is tried on small conversations when it is loaded.
"""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.tools_in_templates import QUESTION, TOOL, Message, Render, ToolForms, talk

PROBE = "probe_"  # with which texts begin that are looked for
APART = "\n\n"  # between texts that become one message


@dataclass(frozen=True)
class RoleForms:
    """What the template shows as it is. The rest is written in another way, and nothing is lost."""

    alone: bool  # the system without a user
    first: bool  # the system in front of the user
    first_of_more: bool  # also where a call's result or an answer is the last message
    systems: bool  # several messages of the system, where they stand
    repeated: bool  # one role speaks twice in a row
    around_calls: bool  # the assistant speaks in front of calls, and again behind their results
    behind_results: bool  # the user speaks right behind results of tools

    def apply(self, messages: list[Message]) -> list[Message]:
        """The messages as the template takes them. A text that cannot be a message of its own is added to the
        message before it: so a conversation that goes on begins as the shorter one did, and is found in the
        prefix cache.
        """
        if self == TAKES_ALL:
            return messages
        written = self._combined(messages)
        if not self.around_calls:
            written = _said_behind_results(written)
        if written and written[0]["role"] == "system" and not self._shows_first(written):
            return _said_by_user(written)
        return written

    def _combined(self, messages: list[Message]) -> list[Message]:
        written: list[Message] = []
        for message in messages:
            last = written[-1] if written else None
            if last is not None and self._joins(last, message):
                written[-1] = _joined(last, message)
            elif message["role"] == "system" and last is not None and not self.systems:
                written.append({**message, "role": "user"})
            else:
                written.append(message)
        return written

    def _shows_first(self, messages: list[Message]) -> bool:
        """Whether the first of these messages, which is the system's, is shown. Where a conversation has
        results, what is said later does not change that: so it goes on as it began.
        """
        if len(messages) == 1:
            return self.alone
        roles = [message["role"] for message in messages]
        return self.first and (self.first_of_more or ("tool" not in roles and roles[-1] == "user"))

    def _joins(self, last: Message, message: Message) -> bool:
        before, role = str(last["role"]), str(message["role"])
        if role == "system" and not self.systems:
            return before != "assistant"
        if before == role == "user":
            return not self.repeated
        if before == role == "assistant":
            return not (self.repeated or last.get("tool_calls") or message.get("tool_calls"))
        return before == "tool" and role == "user" and not self.behind_results


TAKES_ALL = RoleForms(
    alone=True,
    first=True,
    first_of_more=True,
    systems=True,
    repeated=True,
    around_calls=True,
    behind_results=True,
)


def _said_behind_results(messages: list[Message]) -> list[Message]:
    """What the assistant says in front of calls is added to what it says next in its turn. Where it says no
    more, it stays.
    """
    written: list[Message] = []
    said: int | None = None  # where the assistant's text of this turn is
    for message in messages:
        if message["role"] == "user":
            said = None
        elif message["role"] == "assistant" and not message.get("tool_calls"):
            if said is not None:
                message = _joined(written.pop(said), message)
            said = len(written)
        written.append(message)
    return written


def _said_by_user(messages: list[Message]) -> list[Message]:
    """The system's message at the beginning becomes the user's, or a part of the user's first one."""
    told = {**messages[0], "role": "user"}
    if len(messages) > 1 and messages[1]["role"] == "user":
        return [_joined(told, messages[1]), *messages[2:]]
    return [told, *messages[1:]]


def _joined(first: Message, second: Message) -> Message:
    joined = {**second, **first}
    for name in ("content", "reasoning_content"):
        if texts := [message[name] for message in (first, second) if message.get(name)]:
            joined[name] = APART.join(texts)
    return joined


def probe(render: Render, tools: ToolForms) -> RoleForms:
    """Tries a template, of which `tools` are known. `render` is as for tools_in_templates.probe."""
    given = [TOOL] if tools.tools == "variable" else None
    # A call and its result, where the template shows these.
    calling = talk(tools.calls, "")[1:] if tools.calls is not None and tools.calls.results else []

    def shows(*messages: Message) -> bool:
        """Whether all texts that begin like a probe's are shown, one behind the other."""
        called = any(message.get("tool_calls") for message in messages)
        try:
            text = render(list(messages), given if called else None, True, {})
        except Exception:  # it refuses them, which is an answer
            return False
        texts = [message["content"] for message in messages if (message["content"] or "").startswith(PROBE)]
        places = [text.find(shown) for shown in texts]
        return -1 not in places and places == sorted(places)

    (system,) = _said("system")
    before, behind, last = _said("assistant", "assistant", "user")
    return RoleForms(
        alone=shows(system),
        first=shows(system, QUESTION),
        first_of_more=(shows(system, QUESTION, behind) or not shows(QUESTION, behind))
        and (not calling or shows(system, QUESTION, *calling)),
        systems=shows(*_said("system", "system", "user", "assistant", "system", "user")),
        repeated=shows(*_said("user", "user", "assistant", "assistant", "user")),
        around_calls=not calling or shows(QUESTION, before, *calling, behind, last),
        behind_results=not calling or shows(QUESTION, *calling, last),
    )


def _said(*roles: str) -> list[Message]:
    return [{"role": role, "content": f"{PROBE}{n}"} for n, role in enumerate(roles)]
