"""Where a prompt ends: mostly where an answer begins, but it may also end within the last message, which the
model then continues.
"""

from __future__ import annotations

import enum
import secrets

from nic_frontend.errors import bad_request
from nic_frontend.templates.trial import Message


class PromptEnd(enum.Enum):
    ANSWER = "answer"  # where the assistant begins to answer
    CLOSED = "closed"  # behind the last message
    WITHIN = "within"  # within the last message, whose end the model is to write


class Continuation:
    """Finds where the text of a conversation's last message ends in a prompt. A mark that is `written` behind
    the text shows where, as transformers does it. The space behind the mark shows whether the template takes
    the spaces around a message away.
    """

    def __init__(self, messages: list[Message]) -> None:
        """The last of the messages has a text for content."""
        self._messages = messages
        self._text: str = messages[-1]["content"]
        self._mark = f"continued-{secrets.token_hex(8)}"

    def written(self) -> list[Message]:
        *before, last = self._messages
        return [*before, {**last, "content": f"{self._text}{self._mark} "}]

    def cut(self, prompt: str) -> str:
        """The prompt up to the mark. Raises ApiError 400 where a template does not show the text as it is."""
        before, mark, behind = prompt.rpartition(self._mark)
        if self._text.strip() and not behind.startswith(" "):
            before = before.removesuffix(self._text[len(self._text.rstrip()) :])
        if not mark or not before.rstrip().endswith(self._text.strip()):
            raise bad_request(
                "the chat template of this model does not show the last message as it is, so it cannot be "
                "continued: it may leave out thoughts, or change the spaces around them",
                "messages",
                "invalid_value",
            )
        return before
