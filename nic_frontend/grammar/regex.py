r"""Regular expressions as they are written in ECMAScript (JSON Schema's `pattern`), Python and Rust.

Where those differ, what all of them accept is meant: `\d` is 0 to 9, and `\D` nothing that any of them calls
a digit; `.` is no end of a line; `$` is the very end. Refused are what needs memory (back-references), what
depends on text outside of the match (look-behind, word boundaries), but for `^` and `$`, and for look-ahead
in front of everything, and repetitions that are an error or other text in one of them (`a{,3}`, `a**`).
"""

from __future__ import annotations

import re
import string
from functools import lru_cache

from nic_frontend.grammar import characters
from nic_frontend.grammar.characters import Ranges, complement, single, united
from nic_frontend.grammar.expression import (
    BEGIN,
    EMPTY,
    END,
    Expression,
    any_of,
    both,
    closed,
    repeated,
    sequence,
    without,
)
from nic_frontend.grammar.expression import characters as one_character
from nic_frontend.grammar.refusal import GrammarRefused

MAX_NESTING = 100
MAX_COUNT = 65_535
CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "0": "\0"}
CLASSES = {"d": characters.DIGITS, "w": characters.WORD, "s": characters.SPACE}
QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}
COUNTS = re.compile(r"\{([0-9]*)(?:(,)([0-9]*))?\}")
LOOK = ("(?=", "(?!")
LARGE = 16  # ranges of a class
HEX = frozenset(string.hexdigits)


@lru_cache(maxsize=16)
def _shorthand(character: str, everything: bool) -> Ranges:
    r"""What \d, \w or \s stands for, or one of their opposites."""
    name = character.lower()
    broad = list(characters.python_class(f"\\{name}")) if (character == name) == everything else []
    chosen = broad or CLASSES[name]
    return chosen if character == name else complement(chosen)


@lru_cache(maxsize=256)
def _category(name: str, negated: bool, everything: bool) -> Ranges:
    """Of a general category's name."""
    chosen, unassigned = characters.category(name), characters.category("Cn")
    chosen = united(chosen, unassigned) if negated != everything else chosen
    return complement(chosen) if negated else united(chosen)


def searched(pattern: str, in_json: bool = False, broad: bool = False) -> Expression:
    """Texts in which the pattern is found. `in_json`: as they stand in a string of JSON. `broad`: in which
    any of the dialects finds it, instead of all of them.

    Raises GrammarRefused.
    """
    anything = repeated(one_character(characters.ALL, in_json))
    return _read(pattern, in_json, anything, broad)


def matched(pattern: str, in_json: bool = False) -> Expression:
    """Texts that the pattern matches from end to end. Raises GrammarRefused."""
    return _read(pattern, in_json, EMPTY)


def _read(pattern: str, in_json: bool, around: Expression, broad: bool = False) -> Expression:
    reader = Reader(pattern, in_json, broad)
    anything = repeated(one_character(characters.ALL, in_json))
    anchored = pattern.startswith("^")
    if anchored and any(pattern.startswith(look, 1) for look in LOOK):
        reader.at = 1
    looks: list[tuple[bool, Expression]] = []
    while reader.at in (0, 1) or looks:
        if not any(pattern.startswith(look, reader.at) for look in LOOK):
            break
        looks.append(reader.look_ahead(anything))
    if looks and around is not EMPTY and not anchored:
        raise GrammarRefused(f"look-ahead is taken only behind ^ at the beginning: {pattern!r}")
    rest = closed(sequence(EMPTY if looks and anchored else around, reader.everything(), around))
    for wanted, language in looks:
        rest = both(rest, language) if wanted else without(rest, language)
    return rest


class Reader:
    """`at` is the next character of the pattern."""

    def __init__(self, pattern: str, in_json: bool, broad: bool) -> None:
        self.pattern = pattern
        self.at = 0
        self._broad = broad
        self._in_json = in_json
        self._depth = 0
        self._large: dict[tuple[tuple[int, int], ...], Expression] = {}

    def everything(self) -> Expression:
        found = self._alternatives()
        if self.at < len(self.pattern):
            raise self._wrong("')' without '('")
        return found

    def look_ahead(self, anything: Expression) -> tuple[bool, Expression]:
        """Whether what it looks for must be there, and the texts that begin so."""
        wanted = self._next(3) == "(?="
        self._broad = self._broad == wanted  # what must not be there in any dialect is not there in all
        inner = self._alternatives()
        self._broad = self._broad == wanted
        self._expect(")")
        return wanted, closed(sequence(inner, anything))

    def _wrong(self, what: str) -> GrammarRefused:
        return GrammarRefused(f"{what} in the regular expression {self.pattern[:200]!r}, character {self.at}")

    def _peek(self) -> str:
        return self.pattern[self.at : self.at + 1]

    def _next(self, n: int = 1) -> str:
        text = self.pattern[self.at : self.at + n]
        if len(text) < n:
            raise self._wrong("it ends too early")
        self.at += n
        return text

    def _takes(self, text: str) -> bool:
        found = self.pattern.startswith(text, self.at)
        self.at += len(text) if found else 0
        return found

    def _expect(self, text: str) -> None:
        if not self._takes(text):
            raise self._wrong(f"{text!r} is missing")

    def _alternatives(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_NESTING:
            raise self._wrong("groups are nested too deeply")
        found = [self._sequence()]
        while self._takes("|"):
            found.append(self._sequence())
        self._depth -= 1
        return any_of(found)

    def _sequence(self) -> Expression:
        parts = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._quantified(self._atom()))
        return sequence(*parts)

    def _quantified(self, part: Expression) -> Expression:
        if (bounds := self._bounds()) is None:
            return part
        if part in (BEGIN, END):
            raise self._wrong("an anchor is repeated")
        if self._peek() == "+":
            raise self._wrong("a possessive quantifier is not supported")
        self._takes("?")  # a lazy one finds the same texts
        begin = self.at
        if self._bounds() is not None:
            again = self.pattern[begin : self.at]
            raise self._wrong(
                f"{again!r} repeats a repetition, which has to be a group, such as (?:a*){again},"
            )
        return repeated(part, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        """Of the quantifier that stands next, if one does: a brace may also stand for itself."""
        if self._peek() in QUANTIFIERS and self._peek():
            return QUANTIFIERS[self._next()]
        if (counts := COUNTS.match(self.pattern, self.at)) is None or counts.group() == "{}":
            return None
        least, comma, most = counts.groups()
        if not least:
            why = "has no first count, which some dialects take for 0 and others for text: write"
            raise self._wrong(f"{counts.group()!r} {why} {{0,{most}}}, or \\{counts.group()} for the text,")
        if max(len(least), len(most or "")) > 6:
            raise self._wrong("a count is too large")
        bounds = int(least), (int(most) if most else None) if comma else int(least)
        if bounds[1] is not None and bounds[1] < bounds[0]:
            raise self._wrong("the counts are in the wrong order")
        if max(bounds[0], bounds[1] or 0) > MAX_COUNT:
            raise self._wrong("a count is too large")
        self.at = counts.end()
        return bounds

    def _atom(self) -> Expression:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._of(self._bracket())
        if character == ".":
            return self._of(complement(single("\n") if self._broad else characters.LINE_ENDS))
        if character == "^":
            return BEGIN
        if character == "$":
            return any_of([END, sequence(self._of(single("\n")), END)]) if self._broad else END
        if character == "\\":
            return self._escaped()
        if character in QUANTIFIERS:
            raise self._wrong(f"{character!r} repeats nothing")
        if (
            character == "{"
            and (counts := COUNTS.match(self.pattern, self.at - 1))
            and counts.group() != "{}"
        ):
            raise self._wrong(f"{counts.group()!r} repeats nothing; write \\{counts.group()} for the text,")
        return self._of(single(character))

    def _of(self, ranges: Ranges) -> Expression:
        """Of a class of Unicode's, one for all its places: each would take much memory."""
        if len(ranges) < LARGE:
            return one_character(ranges, self._in_json)
        key = tuple(ranges)
        if key not in self._large:
            self._large[key] = one_character(ranges, self._in_json)
        return self._large[key]

    def _group(self) -> Expression:
        if self._takes("?"):
            if self._takes("P<") or (self._takes("<") and self._peek() not in "=!"):
                name = self._next()
                while not self._takes(">"):
                    name += self._next()
            elif not self._takes(":"):
                raise self._wrong("look-around, a flag or another special group is not supported here")
        found = self._alternatives()
        self._expect(")")
        return found

    def _escaped(self) -> Expression:
        character = self._next()
        if character == "A":
            return BEGIN
        if character in "zZ":
            return END
        if character in "bBkGK" or character in "123456789":
            raise self._wrong(f"\\{character} is not supported")
        return self._of(self._class(character, everything=self._broad))

    def _class(self, character: str, everything: bool) -> Ranges:
        """What an escape stands for, its backslash read: in all dialects, or `everything` that it may stand
        for in one.
        """
        if character.lower() in CLASSES:
            return _shorthand(character, everything)
        if character in "pP":
            return self._category(character == "P", everything)
        return single(self._character(character))

    def _category(self, negated: bool, everything: bool) -> Ranges:
        """Of Unicode. What has no character yet may get one that is in it, or is not."""
        name = ""
        if self._takes("{"):
            while not self._takes("}"):
                name += self._next()
        if not characters.category(name):
            raise self._wrong(
                f"{name[:40]!r} is no general category of Unicode; no other classes are supported"
            )
        return _category(name, negated, everything)

    def _character(self, character: str) -> str:
        if character == "c" and self._peek().isascii() and self._peek().isalpha():
            return chr(ord(self._next()) % 32)
        if character == "x":
            return self._by_number(self._next(2))
        if character == "u":
            if self._takes("{"):
                digits = ""
                while not self._takes("}"):
                    digits += self._next()
                return self._by_number(digits)
            return self._pair(self._by_number(self._next(4)))
        if character == "U":
            return self._by_number(self._next(8))
        if character in CONTROLS:
            return CONTROLS[character]
        if character.isascii() and character.isalpha():
            raise self._wrong(f"\\{character} is not supported")
        return character

    def _pair(self, character: str) -> str:
        """Two escapes may be the halves of one character."""
        if "\ud800" <= character < "\udc00" and self._takes("\\u"):
            low = self._by_number(self._next(4))
            if "\udc00" <= low < "\ue000":
                return chr(0x10000 + ((ord(character) & 0x3FF) << 10) + (ord(low) & 0x3FF))
        return character

    def _by_number(self, digits: str) -> str:
        try:
            if not set(digits) <= HEX:
                raise ValueError
            return chr(int(digits, 16))
        except (ValueError, OverflowError):
            raise self._wrong(f"{digits[:20]!r} is no character's number") from None

    def _bracket(self) -> Ranges:
        negated = self._takes("^")
        found: Ranges = []
        large: dict[int, Ranges] = {}
        begin = self.at
        while not (self._peek() == "]" and self.at > begin):
            low = self._member(negated)
            if self._peek() == "-" and self.pattern[self.at + 1 : self.at + 2] not in ("]", ""):
                self._next()
                high = self._member(negated)
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] < low[0][0]:
                    raise self._wrong("a range of characters is wrong")
                found.append((low[0][0], high[0][1]))
            elif len(low) < LARGE:
                found += low
            else:
                large[id(low)] = low  # however often it stands there
        self._next()
        found = united(found, *large.values())
        return complement(found) if negated else found

    def _member(self, negated: bool) -> Ranges:
        character = self._next()
        if character == "[" and self._peek() == ":":
            raise self._wrong("classes of POSIX are not supported")
        if character != "\\":
            return single(character)
        escape = self._next()
        return single("\b") if escape == "b" else self._class(escape, everything=negated != self._broad)
