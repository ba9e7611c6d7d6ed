"""Command-line flags over an options dataclass: the dataclass has the defaults, a table of flags the rest."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from blink.files import Check, CheckedPath

LONGEST_NAME = 200  # of a ring: a file system's 255 bytes, less what is put before and behind it
LONGEST_SOCKET = 107  # bytes of a path (unix(7))
MOST_DAYS = 36500
LACKS = "lacks"  # a parser's default of this name says which flags it does not have on this machine, and why


def plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def written(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Flag:
    """One field of an options dataclass as a flag.

    `help` ends without a full stop. The field's default is appended; `help` itself explains one that is None.
    `parse` takes the flag's text and raises ValueError with a message for the user. A flag that names a file
    or a directory has a `check` instead: its value is a Path, which is looked at before anything starts.
    """

    name: str  # "--max-context"
    field: str
    metavar: str | None
    help: str
    parse: Callable[[str], Any] = str
    check: Check | None = None
    choices: tuple[str, ...] | None = None
    switch: bool = False  # takes no value: when it is given, the field is the opposite of its default
    show: Callable[[Any], str] = plain  # of the default, in the help
    write: Callable[[Any], str] = written  # of a value, for `parse`
    secret: bool = False  # not passed on by `arguments`: other users can read command lines
    many: bool = False  # `parse` returns a tuple, and one that is given again adds to it
    also: tuple[str, ...] = ()  # names that users of other servers know it by


def checked(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """`parse` for argparse, which swallows a ValueError's message, but not that of an ArgumentTypeError."""

    def checked(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


def defaults(options: type) -> dict[str, Any]:
    """The default of each field that has one."""
    return {f.name: f.default for f in dataclasses.fields(options) if f.default is not dataclasses.MISSING}


def add_flags(parser: argparse.ArgumentParser, title: str, options: type, flags: Iterable[Flag]) -> None:
    """Adds a titled group of flags. A flag that is not given leaves no trace in the namespace."""
    group = parser.add_argument_group(title)
    known = defaults(options)
    for flag in flags:
        value = None if flag.switch else known.get(flag.field)
        note = "" if value is None else f" (default: {flag.show(value)})"
        takes: dict[str, Any] = {"type": checked(flag.parse), "choices": flag.choices}
        if flag.check:
            takes = {"action": CheckedPath, "check": flag.check}
        elif flag.switch:
            takes = {"action": "store_const", "const": not known.get(flag.field, False)}
        elif flag.many:
            takes |= {"action": "extend"}
        group.add_argument(
            flag.name,
            *flag.also,
            dest=flag.field,
            default=argparse.SUPPRESS,
            help=(flag.help + note).replace("%", "%%"),
            **takes if flag.switch else {"metavar": flag.metavar, **takes},
        )


def given(namespace: argparse.Namespace, flags: Iterable[Flag]) -> dict[str, Any]:
    """The fields whose flags were given."""
    there = [flag for flag in flags if hasattr(namespace, flag.field)]
    values = {flag.field: getattr(namespace, flag.field) for flag in there}
    return values | {flag.field: tuple(values[flag.field]) for flag in there if flag.many}


def arguments(values: dict[str, Any], flags: Iterable[Flag]) -> list[str]:
    """The command line that `given` reads `values` from, but for secret ones."""
    chosen = [flag for flag in flags if flag.field in values and not flag.secret]
    return [flag.name if flag.switch else f"{flag.name}={flag.write(values[flag.field])}" for flag in chosen]


def suggestion(name: str, known: Sequence[str]) -> str:
    """The flag among `known` that is closest to `name`, as a message's end; empty where none is close."""
    close = get_close_matches(name, [flag for flag in known if flag.startswith("--")], 1, 0.6)
    return f"; did you mean {close[0]}?" if close else ""


def count(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, 1)


def ordinal(text: str) -> int:
    """An integer of at least 0."""
    return _integer(text, 0)


def _integer(text: str, low: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"'{text}' is not a whole number") from None
    if value < low:
        raise ValueError(f"{value} is less than {low}")
    return value


def port(text: str) -> int:
    value = _integer(text, 0)
    if value > 65535:
        raise ValueError(f"{value} is not a port; ports are 1 to 65535, and 0 picks a free one")
    return value


def realtime(text: str) -> int:
    """A priority of SCHED_RR, sched(7)."""
    value = _integer(text, 1)
    if value > 99:
        raise ValueError(f"{value} is no real-time priority; they are 1 to 99")
    return value


def seconds(text: str) -> float:
    """A time of at least 0."""
    try:
        value = float(text.removesuffix("s"))
    except ValueError:
        raise ValueError(f"'{text}' is not a time in seconds") from None
    if not 0 <= value < 1e9:
        raise ValueError(f"{text} is not a time in seconds")
    return value


def duration(text: str) -> float:
    """A time of at least a second."""
    value = seconds(text)
    if value < 1:
        raise ValueError(f"{text} is less than a second")
    return value


def days(text: str) -> float:
    """A time in days, which may be a fraction of one. Raises ValueError."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= MOST_DAYS:
        raise ValueError(f"{text} is not a time in days; write for example 30 or 0.5")
    return value


def ring_name(text: str) -> str:
    """A ring's name, or with a slash its path. Raises ValueError."""
    if not text:
        raise ValueError("the ring's name is empty")
    if "/" in text and Path(text).is_dir():
        raise ValueError(f"{text} is a directory: give a name, or the path of a file")
    if (n := len(os.fsencode(Path(text).name))) > LONGEST_NAME:
        raise ValueError(f"the ring's name has {n} bytes, and may have {LONGEST_NAME}")
    return text


def api_key(text: str) -> str:
    if not text.strip():
        raise ValueError(
            "the key is empty: everybody would have it; leave the flag out to serve without a key"
        )
    return text


def hosts(text: str) -> tuple[str, ...]:
    """Of "example.com,10.0.0.7", or "*". Raises ValueError."""
    form = r"[a-z0-9._-]+|\[?[0-9a-f:.]+\]?"
    return _each_or_any(
        text, form, "is no host; write for example example.com or 10.0.0.7, with no port, or *"
    )


def proxies(text: str) -> tuple[str, ...]:
    """Of "10.0.0.2,10.1.0.0/16,fd00::/8", or "*". Raises ValueError."""
    if text == "*":
        return ("*",)
    for one in text.split(","):
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise ValueError(
                f"'{one}' is no address or network ({error}); write for example 10.0.0.2 or 10.1.0.0/16, or *"
            ) from None
    return tuple(text.split(","))


def origins(text: str) -> tuple[str, ...]:
    """Of "https://example.com,http://localhost:3000", or "*". Raises ValueError."""
    form = r"[a-z][a-z0-9+.-]*://[^/\s]+"
    return _each_or_any(text, form, "is no origin; write for example https://example.com, with no path, or *")


def _each_or_any(text: str, form: str, refusal: str) -> tuple[str, ...]:
    found = tuple(text.lower().split(","))
    for one in found:
        if one != "*" and not re.fullmatch(form, one):
            raise ValueError(f"'{one}' {refusal}")
    return found


def aliases(text: str) -> tuple[str, ...]:
    """Of "gpt-4o,claude-sonnet-5". Raises ValueError."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"'{text}' has an empty name; write for example gpt-4o,claude-sonnet-5")
    return names


def socket_path(text: str) -> Path:
    """Of a Unix socket. Raises ValueError."""
    if not text or (n := len(os.fsencode(text))) > LONGEST_SOCKET:
        raise ValueError(f"a Unix socket's path has 1 to {LONGEST_SOCKET} bytes, not {n if text else 0}")
    return Path(text)


def root_path(text: str) -> str:
    """Of "/llm" or "/llm/", without the slash at its end. Raises ValueError."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+/?", text) or {".", ".."} & {*text.split("/")}:
        raise ValueError(f"'{text}' is not the path of a server; write for example /llm")
    return text.removesuffix("/")


def cores(text: str) -> tuple[int, ...]:
    """Of "0-11" or "0,2,4-7". Raises ValueError."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise ValueError(f"'{text}' are no cores; write for example 0-11 or 0,2,4-7")
        found += range(int(first), int(last or first) + 1)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"'{text}' names no core, or one twice")
    return tuple(found)
