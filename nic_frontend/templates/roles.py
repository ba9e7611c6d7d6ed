"""Which orders of roles a chat template takes. OpenAI takes any, and agents make use of it: they send several
messages of the system, also later ones, and several of the user in a row. Many a template refuses these, or
drops some without a word, so each is tried on small conversations when it is loaded.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from nic_frontend.templates.tools import CallForm, talk
from nic_frontend.templates.trial import QUESTION, Message, Trial, said

UNKNOWN = "probe_role"  # a role that no template knows
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
    developer: bool  # the developer is marked otherwise than the system, wherever it stands

    def apply(self, messages: list[Message]) -> list[Message]:
        """The messages as the template takes them. A text that cannot be a message of its own is added to the
        message before it: so a conversation that goes on begins as the shorter one did, and is found in the
        prefix cache.
        """
        if not self.developer:  # the newer name of "system", which many a template drops or refuses
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message
                for message in messages
            ]
        if dataclasses.replace(self, developer=True) == TAKES_ALL:
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
    developer=True,
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


def probe(trial: Trial, calls: CallForm | None) -> RoleForms:
    """Tries a template, of which it is known how it shows calls."""
    # A call and its result, where the template shows these.
    calling = talk(calls, "")[1:] if calls is not None and calls.results else []
    (system,) = said("system")
    before, behind, last = said("assistant", "assistant", "user")
    forms = RoleForms(
        alone=trial.shows(system),
        first=trial.shows(system, QUESTION),
        first_of_more=(trial.shows(system, QUESTION, behind) or not trial.shows(QUESTION, behind))
        and (not calling or trial.shows(system, QUESTION, *calling)),
        systems=trial.shows(*said("system", "system", "user", "assistant", "system", "user")),
        repeated=trial.shows(*said("user", "user", "assistant", "assistant", "user")),
        around_calls=not calling or trial.shows(QUESTION, before, *calling, behind, last),
        behind_results=not calling or trial.shows(QUESTION, *calling, last),
        developer=False,
    )
    return dataclasses.replace(forms, developer=_knows_developer(trial, calling))


def _knows_developer(trial: Trial, calling: list[Message]) -> bool:
    """Whether the template has a mark of its own for the developer, and shows it wherever it may stand.
    One that writes it like the system, or like any role whatever, does not know it.
    """
    developer, system, other = (trial.text(*_in_front(role)) for role in ("developer", "system", UNKNOWN))
    if developer is None or developer == system:
        return False
    if other is not None and other.lower().replace(UNKNOWN, "developer") == developer.lower():
        return False
    (alone,) = said("developer")
    several = ("system", "developer", "developer", "user", "assistant", "developer", "user")
    return (
        trial.shows(alone)
        and trial.shows(*said(*several))
        and (not calling or trial.shows(alone, QUESTION, *calling))
    )


def _in_front(role: str) -> list[Message]:
    return [{"role": role, "content": "probe_text"}, QUESTION]
