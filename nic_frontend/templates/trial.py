"""Small conversations with which a chat template is tried. A template is a program: what it makes of a
conversation is known when it has been rendered, and not from the words that its source has.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Message = dict[str, Any]
# Messages, tools, add_generation_prompt and further variables to a prompt. Raises whatever a template raises.
Render = Callable[[list[Message], list[Message] | None, bool, dict[str, Any]], str]
Adapt = Callable[[list[Message]], list[Message]]

PROBE = "probe_"  # with which texts begin that are looked for
QUESTION: Message = {"role": "user", "content": "question"}
TOOL: Message = {
    "type": "function",
    "function": {
        "name": "probe_tool",
        "description": "d",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "d"}},
            "required": ["city"],
        },
    },
}


def said(*roles: str) -> list[Message]:
    """A message of each role, each with a text of its own that is looked for."""
    return [{"role": role, "content": f"{PROBE}{n}_{role}"} for n, role in enumerate(roles)]


@dataclass(frozen=True)
class Trial:
    """One of the two uses of a template: with `tools`, or without any. `adapt` writes messages as those
    trials have shown that were made before.
    """

    render: Render
    tools: list[Message] | None = None
    adapt: Adapt = list

    def adapted(self, adapt: Adapt) -> Trial:
        """With `adapt` in front of what is known already."""
        known = self.adapt
        return dataclasses.replace(self, adapt=lambda messages: known(adapt(messages)))

    def text(
        self, *messages: Message, prompt: bool = True, variables: dict[str, Any] | None = None
    ) -> str | None:
        """What the template writes; None where it refuses, which is an answer, too. `prompt`: the assistant
        is to go on.
        """
        try:
            return self.render(self.adapt(list(messages)), self.tools, prompt, variables or {})
        except Exception:
            return None

    def shows(self, *messages: Message) -> bool:
        """Whether all texts that begin like a probe's are shown, one behind the other."""
        text = self.text(*messages)
        texts = [message["content"] for message in messages if (message["content"] or "").startswith(PROBE)]
        places = [text.find(shown) for shown in texts] if text is not None else [-1]
        return -1 not in places and places == sorted(places)
