"""The answers of a gpt-oss model as a grammar: a structure holds in the channel final, a schema in a call."""

from __future__ import annotations

from nic_frontend.grammar.calls import Function, Mark
from nic_frontend.grammar.characters import ALL
from nic_frontend.grammar.expression import (
    Expression,
    any_of,
    characters,
    literal,
    optional,
    repeated,
    sequence,
    until,
)
from nic_frontend.harmony.form import Begins
from nic_frontend.harmony.marks import (
    ANALYSIS,
    ASSISTANT,
    CHANNEL,
    COMMENTARY,
    CONSTRAIN,
    END,
    FINAL,
    FUNCTIONS,
    MESSAGE,
    START,
)


class HarmonyLanguage:
    """Of answers with `content` in their final message; None: any text. One of the `tools` may be called
    instead, or has to be if `must`. An answer has one call at most, because <|call|> ends it.
    """

    def __init__(self, content: Expression | None, tools: list[Function], must: bool, mark: Mark) -> None:
        self._content = content if content is not None else repeated(characters(ALL))
        self._tools = tools
        self._must = must
        self._mark = mark

    def answers(self, begins: Begins) -> Expression:
        """Raises GrammarRefused."""
        if begins is not Begins.WITHIN:
            return self._messages(thinks=begins is Begins.THINKING)
        if not self._must:
            return self._content
        rest = sequence(until(self._mark(END)), self._head(START, ASSISTANT))  # of the message that was begun
        return sequence(rest, self._messages(thinks=True))

    def _messages(self, *, thinks: bool) -> Expression:
        """Thoughts and preambles, and then a call or the final message."""
        ends = [self._call(tool) for tool in self._tools]
        if not self._must:
            head = sequence(self._head(CHANNEL, FINAL), self._type(), self._head(MESSAGE))
            ends.append(sequence(head, self._content))
        before = [self._message(COMMENTARY)] if self._tools else []
        before += [self._message(ANALYSIS)] if thinks else []
        return sequence(repeated(any_of(before)), any_of(ends))

    def _head(self, *parts: str) -> Expression:
        """Marks and texts, one behind another."""
        return literal(b"".join(map(self._mark, parts)))

    def _message(self, channel: str) -> Expression:
        """A message of which more may follow, up to the next one's header."""
        text = until(self._mark(END))
        return sequence(self._head(CHANNEL, channel, MESSAGE), text, self._head(START, ASSISTANT))

    def _type(self) -> Expression:
        """What models write of a message in JSON, or not."""
        return optional(any_of([self._head(" ", CONSTRAIN, "json"), literal(" json")]))

    def _call(self, tool: Function) -> Expression:
        recipient = f" to={FUNCTIONS}{tool.name}"
        heads = [self._head(recipient, CHANNEL, COMMENTARY), self._head(CHANNEL, COMMENTARY, recipient)]
        return sequence(any_of(heads), self._type(), self._head(MESSAGE), tool.arguments())
