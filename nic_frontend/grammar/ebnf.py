"""Grammars in EBNF: as llama.cpp writes them (GBNF, `root ::= ...`), and the part of Lark's that needs no
lexer (`start: ...`).

The text of an answer is what the rules describe, character by character: a terminal takes no more than its
rule says. Rules may call themselves, but not begin with themselves.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from nic_frontend.grammar.characters import ALL
from nic_frontend.grammar.expression import (
    EMPTY,
    Expression,
    Rule,
    any_of,
    call,
    characters,
    literal,
    optional,
    repeated,
    sequence,
)
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import matched

MAX_TOKENS = 100_000
MAX_NESTING = 100
MAX_COUNT = 65_535
COMMON = {  # what Lark's library calls `common`
    "DIGIT": r"[0-9]",
    "HEXDIGIT": r"[a-fA-F0-9]",
    "INT": r"[0-9]+",
    "SIGNED_INT": r"[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "FLOAT": r"[0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?",
    "NUMBER": r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?",
    "SIGNED_NUMBER": r"[+-]?([0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?|\.[0-9]+([eE][+-]?[0-9]+)?)",
    "ESCAPED_STRING": r'"([^"\\\n]|\\[^\n])*"',
    "LCASE_LETTER": r"[a-z]",
    "UCASE_LETTER": r"[A-Z]",
    "LETTER": r"[a-zA-Z]",
    "WORD": r"[a-zA-Z]+",
    "CNAME": r"[_a-zA-Z][_a-zA-Z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
}

TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+|\#[^\n]*|//[^\n]*)
    |(?P<defines>::=|:(?!:))
    |(?P<string>"(?:[^"\\\n]|\\.)*"i?)
    |(?P<regex>/(?:[^/\\\n]|\\.)+/[a-z]*)
    |(?P<directive>%[a-z]+[^\n]*)
    |(?P<count>\{[0-9]*,?[0-9]*\}|~[ ]*[0-9]+(?:[ ]*\.\.[ ]*[0-9]+)?)
    |(?P<alias>->[ ]*[A-Za-z_0-9]+)
    |(?P<range>\.\.)
    |(?P<name>[?!]?[A-Za-z_][A-Za-z0-9_-]*(?:\.-?[0-9]+)?)
    |(?P<mark>[|()*+?.])
    |(?P<open>\[)|(?P<close>\])""",
    re.VERBOSE,
)
BRACKET = re.compile(r"\[(?:[^\]\\\n]|\\.)*\]")


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def of_ebnf(text: str) -> Expression:
    """Raises GrammarRefused with the line at fault."""
    return Grammar(text).root()


class Grammar:
    def __init__(self, text: str) -> None:
        self._lark = "::=" not in text
        self._tokens = self._split(text)
        self._at = 0
        self._depth = 0
        self._rules: dict[str, Rule] = {}
        self._defined: set[str] = set()
        self._used: dict[str, int] = {}  # the line where each was used first
        self._ignored: list[Expression] = []
        self._in_terminal = False
        for token in self._tokens:
            if token.kind == "directive":
                self._direct(token)
        self._tokens = [token for token in self._tokens if token.kind != "directive"]
        while self._peek().kind != "end":
            self._definition()

    def root(self) -> Expression:
        for name, line in self._used.items():
            if name not in self._defined:
                raise GrammarRefused(f"the rule {name!r} is not defined", f"line {line}")
        start = "start" if self._lark else "root"
        if start not in self._defined:
            raise GrammarRefused(f"there is no rule {start!r}, where an answer would begin")
        return sequence(self._gap(), call(self._rules[start]))

    def _split(self, text: str) -> list[Token]:
        found: list[Token] = []
        at, line = 0, 1
        while at < len(text):
            match = BRACKET.match(text, at) if not self._lark else None
            if match is None and not self._lark and text[at] == "[":
                raise GrammarRefused("']' is missing on the line", f"line {line}")
            kind = "class"
            if match is None:
                match = TOKEN.match(text, at)
                kind = match.lastgroup or "" if match else ""
            if match is None:
                raise GrammarRefused(f"{text[at : at + 20]!r} is not understood", f"line {line}")
            if kind != "space":
                found.append(Token(kind, match.group(), line))
            line += match.group().count("\n")
            at = match.end()
            if len(found) > MAX_TOKENS:
                raise GrammarRefused("it is too long", f"line {line}")
        return [*found, Token("end", "", line)]

    def _fail(self, message: str, token: Token | None = None) -> NoReturn:
        raise GrammarRefused(message, f"line {(token or self._peek()).line}")

    def _peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _next(self) -> Token:
        token = self._peek()
        self._at += 1
        return token

    def _direct(self, token: Token) -> None:
        """%ignore and %import of Lark."""
        words = token.text.split()
        renamed = len(words) == 4 and words[2] == "->"
        is_known = len(words) == 2 or renamed
        if words[0] == "%import" and is_known and words[1].startswith("common."):
            name = words[1].removeprefix("common.")
            if name not in COMMON:
                self._fail(f"{words[1]!r} is not known", token)
            self._rule(words[3] if renamed else name).body = matched(COMMON[name])
            self._defined.add(words[3] if renamed else name)
        elif words[0] == "%ignore" and len(words) == 2:
            name = words[1]
            if name.startswith("/") and name.endswith("/") and len(name) > 2:
                self._ignored.append(self._regex(Token("regex", name, token.line)))
            elif name.startswith('"'):
                self._ignored.append(literal(self._unescaped(Token("string", name, token.line))))
            else:
                self._used.setdefault(name, token.line)
                self._ignored.append(call(self._rule(name)))
        else:
            self._fail(f"{token.text[:60]!r} is not supported", token)

    def _rule(self, name: str) -> Rule:
        return self._rules.setdefault(name, Rule(f"the rule {name!r}"))

    def _gap(self) -> Expression:
        """What is ignored between terminals."""
        return repeated(any_of(self._ignored)) if self._ignored else EMPTY

    def _definition(self) -> None:
        token = self._next()
        if token.kind != "name" or self._next().kind != "defines":
            self._fail("a rule's name and its definition were expected", token)
        name = token.text.lstrip("?!").partition(".")[0]
        if name in self._defined:
            self._fail(f"the rule {name!r} is defined twice", token)
        self._defined.add(name)
        self._in_terminal = self._lark and name.lstrip("_").isupper()
        self._rule(name).body = self._alternatives()

    def _begins_definition(self) -> bool:
        return self._peek().kind == "name" and self._peek(1).kind == "defines"

    def _alternatives(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_NESTING:
            self._fail("parentheses are nested too deeply")
        found = [self._sequence()]
        while self._peek().text == "|":
            self._next()
            found.append(self._sequence())
        self._depth -= 1
        return any_of(found)

    def _sequence(self) -> Expression:
        parts = []
        while not (
            self._peek().kind in ("end", "close")
            or self._peek().text in ("|", ")")
            or self._begins_definition()
        ):
            if self._peek().kind == "alias":
                self._next()
                continue
            parts.append(self._repeated(self._atom()))
        return sequence(*parts)

    def _repeated(self, part: Expression) -> Expression:
        while True:
            token = self._peek()
            if token.kind == "count":
                part = repeated(part, *self._counts(self._next()))
            elif token.kind == "mark" and token.text in "*+?":
                bounds = {"*": (0, None), "+": (1, None), "?": (0, 1)}[self._next().text]
                part = repeated(part, *bounds)
            else:
                return part

    def _counts(self, token: Token) -> tuple[int, int | None]:
        numbers = re.findall(r"[0-9]+", token.text)
        if any(len(number) > 6 for number in numbers) or max(map(int, numbers), default=0) > MAX_COUNT:
            self._fail("a count is too large", token)
        is_open = token.text.startswith("{") and "," in token.text
        if not numbers:
            self._fail("a count is missing", token)
        least = 0 if token.text.startswith("{,") else int(numbers[0])
        most = None if is_open and token.text.endswith(",}") else int(numbers[-1])
        if most is not None and most < least:
            self._fail("the counts are in the wrong order", token)
        return least, most

    def _atom(self) -> Expression:
        token = self._next()
        if token.text == "(":
            found = self._alternatives()
            if self._next().text != ")":
                self._fail("')' is missing", token)
            return found
        if token.kind == "open":  # of Lark: what may be left out
            found = optional(self._alternatives())
            if self._next().kind != "close":
                self._fail("']' is missing", token)
            return found
        if token.kind == "name":
            return self._named(token)
        return self._terminal(self._characters(token))

    def _terminal(self, found: Expression) -> Expression:
        return found if self._in_terminal else sequence(found, self._gap())

    def _named(self, token: Token) -> Expression:
        self._used.setdefault(token.text, token.line)
        found = call(self._rule(token.text))
        return self._terminal(found) if self._lark and token.text.lstrip("_").isupper() else found

    def _characters(self, token: Token) -> Expression:
        if token.kind == "string" and self._peek().kind == "range":
            self._next()
            first, last = self._unescaped(token), self._unescaped(self._next())
            if len(first) != 1 or len(last) != 1 or last < first:
                self._fail("a range of characters is wrong", token)
            return characters([(ord(first), ord(last))])
        if token.kind == "string":
            return self._string(token)
        if token.kind == "regex" and self._lark:
            return self._regex(token)
        if token.kind == "class":
            return self._regex(Token("regex", f"/{token.text}/", token.line))
        if token.text == "." and not self._lark:
            return characters(ALL)
        raise GrammarRefused(f"{token.text!r} was not expected here", f"line {token.line}")

    def _string(self, token: Token) -> Expression:
        text = self._unescaped(token)
        if not token.text.endswith("i"):
            return literal(text)
        return sequence(*(any_of([literal(c) for c in dict.fromkeys((c.lower(), c.upper()))]) for c in text))

    def _unescaped(self, token: Token) -> str:
        if token.kind != "string":
            self._fail("a string was expected", token)
        inner = token.text.removesuffix("i")[1:-1]
        simple = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "b": "\b", "0": "\0"}

        def character(found: re.Match[str]) -> str:
            digits = found["x"] or found["u"] or found["U"]
            return chr(int(digits, 16)) if digits else simple.get(found["c"], found["c"])

        escape = r"\\(?:x(?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})|(?P<c>.))"
        try:
            return re.sub(escape, character, inner)
        except (ValueError, OverflowError):
            self._fail("an escape names no character", token)

    def _regex(self, token: Token) -> Expression:
        pattern, _, flags = token.text[1:].rpartition("/")
        if flags:
            self._fail(f"the flags {flags!r} of a regular expression are not supported", token)
        try:
            return matched(pattern.replace("\\/", "/"))
        except GrammarRefused as error:
            self._fail(str(error), token)
