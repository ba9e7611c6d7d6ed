"""Formats with strings of any length, as some of their strings that are no longer than a `maxLength`.

An automaton that counts all characters of such a string has its states once for each length. For a URI as
pydantic bounds it, that is more than are allowed. Here every part has a share of the characters, and counts
them by itself: then the states add up.
"""

from __future__ import annotations

from functools import lru_cache

from nic_frontend.grammar import characters
from nic_frontend.grammar import formats as form
from nic_frontend.grammar.expression import Expression, any_of, both, optional, repeated, sequence
from nic_frontend.grammar.expression import characters as one_character
from nic_frontend.grammar.regex import matched

SHORTEST = 128  # characters; up to fewer, all strings of a format are counted
KEPT = 64  # of them, for schemas that have the same again
LONGEST_HOST = 63  # and so is each of its labels, as they may be
LONGEST_LOCAL = 64  # of an email address
LONGEST_REST = 1024  # of a URI, behind its host and port
HEAD = 20  # of a URI, in which the host stands: "https+inprog://" and ":8080"

LABEL = r"[a-zA-Z0-9](?:-?[a-zA-Z0-9])*"
HOST = rf"{LABEL}(?:\.{LABEL})*"
SCHEME = r"[a-zA-Z][a-zA-Z0-9+.-]{0,11}"
PORT = r":\d{1,4}"
IN_QUERY = rf"(?:{form.PCHAR}|[/?])*"


@lru_cache(maxsize=KEPT)
def of_bounded_format(name: str, most: int) -> Expression | None:
    """Strings of a format of at most so many characters, as JSON writes them; None where all are counted."""
    if most < SHORTEST:
        return None
    if name in ("email", "idn-email"):
        return sequence(up_to(LONGEST_LOCAL, form.LOCAL), _text("@"), up_to(LONGEST_HOST, HOST))
    if name in ("uri", "iri"):
        return _uri(most)
    if name in ("uri-reference", "iri-reference"):
        return any_of([_uri(most), _relative(most)])
    return None


def up_to(most: int, pattern: str) -> Expression:
    plain = one_character(characters.ALL, in_json=True)
    return both(_text(pattern), repeated(plain, 0, most))


def _text(pattern: str) -> Expression:
    return matched(pattern, in_json=True)


def _uri(most: int) -> Expression:
    host = min(LONGEST_HOST, most // 3)
    path, tail = _parts(most - HEAD - host)
    authority = sequence(_text("//"), up_to(host, HOST), optional(_text(PORT)), up_to(path, form.PATH))
    opaque = up_to(path, f"{form.PCHAR}+{form.PATH}")
    return sequence(_text(f"{SCHEME}:"), any_of([authority, opaque]), tail)


def _relative(most: int) -> Expression:
    path, tail = _parts(most)
    return sequence(up_to(path, form.RELATIVE_PATH), tail)


def _parts(most: int) -> tuple[int, Expression]:
    """The longest path, and what stands behind it: a query and a fragment."""
    rest = min(most, LONGEST_REST)
    query, fragment = rest * 3 // 8, rest // 8
    tail = sequence(optional(up_to(query, rf"\?{IN_QUERY}")), optional(up_to(fragment, f"#{IN_QUERY}")))
    return rest - query - fragment, tail
