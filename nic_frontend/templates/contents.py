"""In which form a chat template takes what each role says. Most take a text. Some take a list of parts alone:
they loop over it, and of a text they show nothing. Some show nothing of what a role says, in either form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nic_frontend.errors import bad_request
from nic_frontend.templates.trial import PROBE, Message, Trial, said

# A part that is printed as it is, as JSON or in Python's form: no model was trained on such a prompt.
PRINTED_PART = re.compile(rf"""['"]text\\?['"]\s*:\s*\\?['"]{PROBE}""")
# What is tried for each role. Where a template refuses the first, the second decides.
TALKS: dict[str, tuple[tuple[str, ...], ...]] = {
    "user": (("user",), ("system", "user")),
    "system": (("system", "user"), ("system", "user", "assistant", "user")),
    "assistant": (("user", "assistant", "user"), ("user", "assistant")),
}


@dataclass(frozen=True)
class ContentForms:
    """`in_parts`: the roles whose content has to be a list of parts. `lost`: those that are not shown."""

    in_parts: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()

    def check(self, messages: list[Message]) -> None:
        """Raises ApiError 400 where something that was said would not be shown."""
        for i, message in enumerate(messages):
            if message["role"] in self.lost and message.get("content"):
                where = f"messages[{i}].content"
                raise bad_request(
                    f"the chat template of this model shows nothing of what the {message['role']} says, so "
                    f"'{where}' would be lost; --chat-template FILE names another",
                    where,
                    "unsupported_parameter",
                )

    def apply(self, messages: list[Message]) -> list[Message]:
        """Messages, whose content is text, as the template takes them."""
        if not self.in_parts:
            return messages
        return [_in_parts(message) if message["role"] in self.in_parts else message for message in messages]

    def taking(self, role: str) -> ContentForms:
        """These, with the content of one more role in parts."""
        return ContentForms(self.in_parts | {role}, self.lost)


def _in_parts(message: Message) -> Message:
    content = message["content"]
    return message if content is None else {**message, "content": [{"type": "text", "text": content}]}


def is_shown(text: str | None, content: str) -> bool:
    """Whether a template has written the text of a probe, and not as a printed part."""
    return text is not None and content in text and not PRINTED_PART.search(text)


def probe(trial: Trial) -> ContentForms:
    """What the user, the system and the assistant say. The system that is lost has its text elsewhere
    (roles.py).
    """
    forms = ContentForms()
    for role in TALKS:
        takes_text, takes_parts = (_takes(trial, each, role) for each in (forms, forms.taking(role)))
        if not takes_text and takes_parts:
            forms = forms.taking(role)
        elif takes_text is False and takes_parts is not True and role != "system":
            forms = ContentForms(forms.in_parts, forms.lost | {role})
    return forms


def _takes(trial: Trial, forms: ContentForms, role: str) -> bool | None:
    """Whether the role's text is shown; None where the template refuses to write anything."""
    for roles in TALKS[role]:
        messages = said(*roles)
        if (text := trial.adapted(forms.apply).text(*messages)) is not None:
            return is_shown(text, messages[roles.index(role)]["content"])
    return None
