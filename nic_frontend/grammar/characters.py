"""Sets of Unicode's characters, as ordered ranges of code points without surrogates' meaning anything."""

from __future__ import annotations

import itertools
import re
import unicodedata
from functools import cache

Ranges = list[tuple[int, int]]

LAST = 0x10FFFF
ALL: Ranges = [(0, LAST)]


def united(*sets: Ranges) -> Ranges:
    found: Ranges = []
    for first, last in sorted(pair for ranges in sets for pair in ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def complement(ranges: Ranges) -> Ranges:
    found, begin = [], 0
    for first, last in united(ranges):
        if first > begin:
            found.append((begin, first - 1))
        begin = last + 1
    if begin <= LAST:
        found.append((begin, LAST))
    return found


def single(*characters: str) -> Ranges:
    return united([(ord(character), ord(character)) for character in characters])


DIGITS: Ranges = [(0x30, 0x39)]
WORD = united(DIGITS, [(0x41, 0x5A), (0x61, 0x7A)], single("_"))
SPACE = single("\t", "\n", "\v", "\f", "\r", " ")
LINE_ENDS = single("\n", "\r", "\u2028", "\u2029")


# Where Unicode has characters that differ. To look at all others, too, would take four times as long.
VARIED = (range(0x40000), range(0xE0000, 0xE1000))
ALIKE: dict[str, Ranges] = {
    "Cn": [(0x40000, 0xDFFFF), (0xE1000, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, LAST)],
    "Co": [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)],
}


@cache
def _varied() -> tuple[tuple[int, str], ...]:
    """The first code point and the characters of each part of VARIED."""
    return tuple((points[0], "".join(map(chr, points))) for points in VARIED)


@cache
def python_class(escape: str) -> tuple[tuple[int, int], ...]:
    r"""What one of \d, \w and \s means to Python's re, or to ECMAScript: the characters that either takes."""
    spans = (found.group() for _, text in _varied() for found in re.finditer(f"{escape}+", text))
    ranges = [(ord(span[0]), ord(span[-1])) for span in spans]
    return tuple(united(ranges, single("\ufeff") if escape == r"\s" else []))


CATEGORIES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Titlecase_Letter": "Lt",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Mark": "M", "Nonspacing_Mark": "Mn", "Spacing_Mark": "Mc",
    "Enclosing_Mark": "Me", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Open_Punctuation": "Ps", "Close_Punctuation": "Pe",
    "Initial_Punctuation": "Pi",
    "Final_Punctuation": "Pf", "Other_Punctuation": "Po", "Symbol": "S", "Math_Symbol": "Sm",
    "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Other_Symbol": "So", "Separator": "Z",
    "Space_Separator": "Zs", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Control": "Cc",
    "Format": "Cf", "Unassigned": "Cn",
}  # fmt: skip


def category(name: str) -> Ranges:
    """The characters of a general category of Unicode, by either of its names; none if it is no name."""
    name = name.removeprefix("General_Category=").removeprefix("gc=")
    if not (wanted := CATEGORIES.get(name, name)):
        return []
    return [span for one, spans in _categories().items() if one.startswith(wanted) for span in spans]


@cache
def _categories() -> dict[str, Ranges]:
    found = {name: list(ranges) for name, ranges in ALIKE.items()}
    for point, text in _varied():
        for name, group in itertools.groupby(map(unicodedata.category, text)):
            following = point + sum(1 for _ in group)
            found.setdefault(name, []).append((point, following - 1))
            point = following
    return found
