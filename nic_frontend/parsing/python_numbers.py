"""Numbers as Python writes them, in terms of JSON."""

from __future__ import annotations

import re

MAX_CONVERTED = 1_000  # digits of another base than ten: to convert them takes the square of their number

DIGITS = r"[0-9](?:_?[0-9])*"
INTEGER = re.compile(r"0(?:_?0)*|[1-9](?:_?[0-9])*")
FLOAT = re.compile(
    rf"(?:(?P<whole>{DIGITS})?\.(?P<fraction>{DIGITS})?|(?P<digits>{DIGITS})(?=[eE]))"
    rf"(?P<exponent>[eE][-+]?{DIGITS})?"
)
CONVERTED = re.compile(r"0(?:[xX](?:_?[0-9a-fA-F])+|[oO](?:_?[0-7])+|[bB](?:_?[01])+)")


def number(text: str) -> str | None:
    """A number as JSON, with all of its digits; None for what is none."""
    plain = text.replace("_", "")
    if INTEGER.fullmatch(text):
        return plain.lstrip("0") or "0"
    if CONVERTED.fullmatch(text):
        return str(int(plain, 0)) if len(plain) <= MAX_CONVERTED else None
    found = FLOAT.fullmatch(text)
    if found is None or text.startswith((".e", ".E")) or text == ".":
        return None
    whole, fraction, digits, exponent = (part.replace("_", "") for part in found.groups(""))
    begin = (whole or digits).lstrip("0") or "0"
    return f"{begin}{exponent}" if digits else f"{begin}.{fraction or '0'}{exponent}"
