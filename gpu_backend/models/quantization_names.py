"""What a model's files call the modules that are quantized, and how a quantization is refused.

Each tool has its own way of naming modules. All become regular expressions, and since names and patterns come
from elsewhere, they are bounded in number, in length and in the time that matching takes.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from gpu_backend.models.fields import Fields, UnsupportedModel
from gpu_backend.models.quantization import LINEAR
from ringbuffer.model_file import one_line, shown

KEY = "quantization_config"
SERVED = (
    "Blink serves weights in fp8 (e4m3) with a scale for each tensor, row or block of 128 x 128, and in four "
    "bits with a scale for each group of a row"
)
EVERYTHING = (LINEAR,)  # as the patterns of a target
PATTERN = "re:"  # compressed-tensors' prefix of a regular expression
MAX_NAMES = 16384  # of modules or patterns in a list
MAX_NAME = 512  # characters of one
LONGEST_MODULE = 64  # characters of the names that patterns are tried on, about
MAX_WAYS = 10_000_000  # in which a pattern may be tried on such a name: a fraction of a second


def refused(what: str) -> UnsupportedModel:
    """The error for what a section says and no engine here serves."""
    return UnsupportedModel(f"config.json: {KEY}: {what} is not supported: {SERVED}")


def names(fields: Fields, key: str) -> list[str]:
    """A list of modules' names or patterns. Raises UnsupportedModel."""
    found = fields.items(key)
    if not all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in found):
        raise UnsupportedModel(f"config.json: {KEY}: {key} must be a list of names, found {shown(found)}")
    if len(found) > MAX_NAMES:
        raise UnsupportedModel(f"config.json: {KEY}: {key} has {len(found)} names, at most {MAX_NAMES} fit")
    return found


def any_of(patterns: Iterable[str]) -> tuple[str, ...]:
    """One regular expression for what any of them means, or none: there may be hundreds, and modules by the
    ten thousand."""
    alternatives = "|".join(patterns)
    return (alternatives,) if alternatives else ()


def exactly(name: str) -> str:
    """A regular expression for what compressed-tensors means: one module, or a pattern for its beginning."""
    if not name.startswith(PATTERN):
        return re.escape(name) + r"\Z"
    pattern = name.removeprefix(PATTERN)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsupportedModel(
            f"config.json: {KEY}: {shown(name)} is no regular expression: {one_line(str(error))}"
        ) from None
    _check_ways(name, pattern)
    return pattern


def anywhere(name: str) -> str:
    """A regular expression for what the others mean: whole parts of a path, with * for anything."""
    body = ".*".join(map(re.escape, name.split("*")))
    pattern = rf"(?:.*\.)?{body}(?:\..*)?\Z"
    _check_ways(name, pattern)
    return pattern


# What multiplies the ways in which Python's engine tries to match. Escapes and sets are no choices.
_CHOICES = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<group>\((?!\?)|\(\?(?:[:=!]|<[=!]|P<\w+>))|(?P<odd>\(\?)|(?P<end>\))"
    r"|(?P<many>[*+{])|(?P<few>\?)|(?P<other>\|)",
    re.DOTALL,
)


def _check_ways(name: str, pattern: str) -> None:
    """Raises UnsupportedModel for a pattern that a backtracking engine might try for ever: what repeats
    a group, or has many repetitions and alternatives, whose numbers multiply.
    """
    found = list(_CHOICES.finditer(pattern))
    kinds = Counter(choice.lastgroup for choice in found)
    repeats_groups = any(
        (end.lastgroup, many.lastgroup) == ("end", "many") and end.end() == many.start()
        for end, many in pairwise(found)
    )
    ways = math.comb(LONGEST_MODULE, min(kinds["many"], LONGEST_MODULE // 2)) * 2 ** kinds["few"]
    for group in pattern.split("("):
        ways *= 1 + group.count("|")
    if kinds["odd"] or repeats_groups or ways > MAX_WAYS:
        raise UnsupportedModel(
            f"config.json: {KEY}: {shown(name)} has options, repeats groups, or has too many repetitions and "
            "alternatives"
        )
