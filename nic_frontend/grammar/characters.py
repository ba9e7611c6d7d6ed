"""Sets of Unicode's characters, as ordered ranges of code points without surrogates' meaning anything."""

from __future__ import annotations

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


@cache
def python_class(escape: str) -> tuple[tuple[int, int], ...]:
    r"""What one of \d, \w and \s means to Python's re, or to ECMAScript: the characters that either takes."""
    everything = "".join(map(chr, range(0xD800))) + "".join(map(chr, range(0xE000, LAST + 1)))
    spans = (found.group() for found in re.finditer(f"(?:{escape})+", everything))
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
    found: dict[str, Ranges] = {}
    for point in range(LAST + 1):
        spans = found.setdefault(unicodedata.category(chr(point)), [])
        if spans and spans[-1][1] == point - 1:
            spans[-1] = (spans[-1][0], point)
        else:
            spans.append((point, point))
    return found
