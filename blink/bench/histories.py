"""What a conversation or a session has said so far, as the prompt of its next request: token ids, text, or
messages.
"""

from __future__ import annotations

import json
from typing import ClassVar, Protocol, Self

from blink.bench.prompts import Prompts
from blink.bench.stream import Reading

NO_IDS = (
    "the server returns no token ids (return_token_ids), so the history would not be what it generated: "
    "use --prompts text or chat"
)


class History(Protocol):
    """`Kind(prompts, number, n)` begins with system prompt `number` of n tokens; with none where n is 0."""

    def question(self, number: int, n: int) -> str:
        """A question of n tokens joins the history. Returns the field of a request that holds all of it."""
        ...

    def answer(self, reading: Reading) -> None:
        """An answer joins the history. Raises ValueError where the server did not tell all of it."""
        ...

    def fork(self) -> Self:
        """A history that has said the same and goes on by itself."""
        ...

    def result(self, reading: Reading) -> None:
        """The answer to a fork joins the history as the result of a tool. Raises as `answer` does."""
        ...

    def past(self, number: int, n: int) -> None:
        """n tokens join the history as if they had been said before."""
        ...


class Ids:
    """Token ids. Those of the answers are the ones that the server generated."""

    endpoint = "completions"
    fields: ClassVar[dict[str, bool]] = {"return_token_ids": True}

    def __init__(self, prompts: Prompts, number: int, n: int) -> None:
        self._prompts = prompts
        self._parts = [prompts.ids(number, n)] if n else []

    def question(self, number: int, n: int) -> str:
        self._parts.append(self._prompts.ids(number, n))
        return f'"prompt":[{",".join(self._parts)}]'

    def answer(self, reading: Reading) -> None:
        n_ids = len(reading.token_ids)
        if n_ids == 0 or reading.tokens not in (None, n_ids):
            raise ValueError(NO_IDS)
        self._parts.append(",".join(map(str, reading.token_ids)))

    result = answer

    def fork(self) -> Ids:
        other = Ids(self._prompts, 0, 0)
        other._parts = [*self._parts]
        return other

    def past(self, number: int, n: int) -> None:
        self._parts.append(self._prompts.ids(number, n))


class Text:
    """Text. A word counts as a token; how many tokens it is to the server, the server's `usage` says."""

    endpoint = "completions"
    fields: ClassVar[dict[str, bool]] = {}

    def __init__(self, prompts: Prompts, number: int, n: int) -> None:
        self._prompts = prompts
        self._parts = [prompts.words(number, n)] if n else []

    def question(self, number: int, n: int) -> str:
        self._parts.append("\n" + self._prompts.words(number, n) + "\n")
        return f'"prompt":{json.dumps("".join(self._parts))}'

    def answer(self, reading: Reading) -> None:
        self._parts.append("".join(reading.texts))

    def fork(self) -> Text:
        other = Text(self._prompts, 0, 0)
        other._parts = [*self._parts]
        return other

    def result(self, reading: Reading) -> None:
        self._parts.append("\n" + "".join(reading.texts))

    def past(self, number: int, n: int) -> None:
        self._parts.append("\n" + self._prompts.words(number, n))


class Chat:
    """Messages of a system, a user and an assistant. Words count as in Text; the chat template adds more.

    Results of tools stand in the next question: some templates take no other order of roles.
    """

    endpoint = "chat/completions"
    fields: ClassVar[dict[str, bool]] = {}

    def __init__(self, prompts: Prompts, number: int, n: int) -> None:
        self._prompts = prompts
        self._messages: list[dict[str, str]] = []
        self._results: list[str] = []
        if n:
            self._say("system", prompts.words(number, n))

    def _say(self, role: str, content: str) -> None:
        self._messages.append({"role": role, "content": content})

    def question(self, number: int, n: int) -> str:
        self._say("user", "\n".join([*self._results, self._prompts.words(number, n)]))
        self._results = []
        return f'"messages":{json.dumps(self._messages)}'

    def answer(self, reading: Reading) -> None:
        self._say("assistant", "".join(reading.texts))

    def fork(self) -> Chat:
        other = Chat(self._prompts, 0, 0)
        other._messages, other._results = [*self._messages], [*self._results]
        return other

    def result(self, reading: Reading) -> None:
        self._results.append("".join(reading.texts))

    def past(self, number: int, n: int) -> None:
        self._results.append(self._prompts.words(number, n))


KINDS: dict[str, type[Ids | Text | Chat]] = {"ids": Ids, "text": Text, "chat": Chat}
