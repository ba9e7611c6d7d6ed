"""Formats of strings that JSON Schema names, as regular expressions: at least what common checkers take for
valid.

A format that is not here says nothing, as the standard has it.
"""

from __future__ import annotations

from functools import cache

from nic_frontend.grammar.expression import Expression
from nic_frontend.grammar.regex import matched

YEAR = r"(?:[1-9]\d{3}|0[1-9]\d\d|00[1-9]\d|000[1-9])"
DAY = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)"
    r"|02-(?:0[1-9]|1\d|2[0-8]))"
)
LEAP_DAY = r"(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)-02-29"
DATE = rf"(?:{YEAR}-{DAY}|{LEAP_DAY})"
TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
CLOCK = r"T(?:\d+H(?:\d+M(?:\d+S)?)?|\d+M(?:\d+S)?|\d+S)"
CALENDAR = r"(?:\d+Y(?:\d+M(?:\d+D)?)?|\d+M(?:\d+D)?|\d+D)"
OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
IPV4 = rf"(?:{OCTET}\.){{3}}{OCTET}"
GROUP = r"[0-9a-fA-F]{1,4}"
IPV6 = "|".join(
    [
        rf"(?:{GROUP}:){{7}}{GROUP}",
        *(rf"(?:{GROUP}:){{{n}}}(?::{GROUP}){{1,{7 - n}}}" for n in range(1, 7)),
        rf"(?:{GROUP}:){{1,7}}:",
        rf":(?:(?::{GROUP}){{1,7}}|:)",
    ]
)
LABEL = r"[a-zA-Z0-9](?:-?[a-zA-Z0-9]){0,14}"
HOSTNAME = rf"{LABEL}(?:\.{LABEL}){{0,6}}"  # of up to 253 characters
HOST = rf"{LABEL}(?:\.{LABEL})*"
ATOM = r"[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
LOCAL = rf"{ATOM}(?:\.{ATOM})*"
EMAIL = rf"{LOCAL}@{HOST}"
PCHAR = r"(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
PATH = rf"(?:/{PCHAR}*)*"
TAIL = rf"(?:\?(?:{PCHAR}|[/?])*)?(?:#(?:{PCHAR}|[/?])*)?"
SCHEME = r"[a-zA-Z][a-zA-Z0-9+.-]*"
AUTHORITY = rf"(?:(?:[a-zA-Z0-9._~-]+@)?{HOST}(?::\d{{1,4}})?)"
URI = rf"{SCHEME}:(?://{AUTHORITY}{PATH}|{PCHAR}+{PATH}){TAIL}"
RELATIVE_PATH = rf"/?(?:[a-zA-Z0-9._~-]+{PATH})?"
REFERENCE = rf"(?:{URI}|{RELATIVE_PATH}{TAIL})"
POINTER = r"(?:/(?:[^~/]|~[01])*)*"

UNENFORCED = ("regex", "uri-template")  # that no finite automaton knows, or nobody asks for

PATTERNS = {
    "date": DATE,
    "time": TIME,
    "date-time": rf"{DATE}T{TIME}",
    "duration": rf"P(?:{CALENDAR}(?:{CLOCK})?|{CLOCK}|\d+W)",
    "email": EMAIL,
    "idn-email": EMAIL,
    "hostname": HOSTNAME,
    "idn-hostname": HOSTNAME,
    "ipv4": IPV4,
    "ipv6": IPV6,
    "uuid": r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "uri": URI,
    "iri": URI,
    "uri-reference": REFERENCE,
    "iri-reference": REFERENCE,
    "json-pointer": POINTER,
    "relative-json-pointer": rf"(?:0|[1-9]\d*)(?:#|{POINTER})",
}


def of_format(name: str) -> Expression | None:
    """The strings of a format as JSON writes them, without quotes; None for one that says nothing."""
    return _known(name) if name in PATTERNS else None


@cache
def _known(name: str) -> Expression:
    return matched(PATTERNS[name], in_json=True)
