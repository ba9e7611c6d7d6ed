"""Strings of a schema: lengths, patterns, formats. With a pattern or a format, a string is written in one way
only.
"""

from __future__ import annotations

import json

from nic_frontend.grammar import characters
from nic_frontend.grammar.bounded_formats import of_bounded_format
from nic_frontend.grammar.expression import (
    NOTHING,
    Expression,
    Rule,
    any_of,
    both,
    call,
    literal,
    repeated,
    sequence,
    without,
)
from nic_frontend.grammar.expression import characters as one_character
from nic_frontend.grammar.formats import UNENFORCED, of_format
from nic_frontend.grammar.json_text import QUOTE, quoted, string
from nic_frontend.grammar.keywords import bounds_of
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import searched
from nic_frontend.grammar.vocabulary import NOT, NOT_PATTERN

KEYWORDS = ("minLength", "maxLength", "pattern", "format", NOT, NOT_PATTERN)
PLAIN = one_character(characters.ALL, in_json=True)
ANYTHING = repeated(PLAIN)
FREE_LEAST = 64  # a string with a higher `minLength` may need more than the shares of its format's parts


def strings(places: list[Place], known: dict[str, Rule]) -> Expression:
    """Strings that are valid for all of the schemas. `known`: what equal schemas allow is one rule."""
    least, most = bounds_of(places, "minLength", "maxLength")
    if least <= FREE_LEAST and any(_short(place, most) for place in places):
        languages = [language for place in places for language in conditions(place, most)]
        most = None  # that is in them
    else:
        languages = [language for place in places for language in conditions(place)]
    excluded = excluded_strings(places)
    unwanted = _excluded_patterns(places)
    if not languages and not excluded and not unwanted:
        return string(least, most)
    if least or most is not None:
        languages.append(repeated(PLAIN, least, most))
    key = json.dumps(
        [[place.value.get(name) for name in KEYWORDS] for place in places if isinstance(place.value, dict)]
    )
    rule = known.setdefault(key, Rule(places[0].where))
    if rule.body is None:
        rule.body = within(languages, excluded)
        for language in unwanted:
            rule.body = without(rule.body, language)
    return NOTHING if rule.body is NOTHING else sequence(QUOTE, call(rule), QUOTE)


def within(languages: list[Expression], excluded: list[str]) -> Expression:
    """What is in all of the languages, and none of the excluded texts, as they stand between quotes."""
    found = languages[0] if languages else ANYTHING
    for language in languages[1:]:
        found = both(found, language)
    if excluded:
        found = without(found, any_of([literal(quoted(text)[1:-1]) for text in excluded]))
    return found


def _short(place: Place, most: int | None) -> Expression | None:
    """Strings of a schema's format that are no longer, where it is better not to count all of them."""
    assert isinstance(place.value, dict)
    name = place.value.get("format")
    return of_bounded_format(name, most) if isinstance(name, str) and most is not None else None


def conditions(place: Place, most: int | None = None) -> list[Expression]:
    """What a schema's pattern and format say. `most`: of a format, strings that are no longer will do."""
    schema = place.value
    assert isinstance(schema, dict)
    found = []
    if "pattern" in schema:
        where = f"{place.where}/pattern"
        try:
            found.append(searched(schema["pattern"], in_json=True))
        except GrammarRefused as error:
            raise GrammarRefused(str(error), where) from error
    if schema.get("format") in UNENFORCED:
        raise GrammarRefused(f"the format {schema['format']!r} is not supported", f"{place.where}/format")
    language = _short(place, most)
    if language is None and isinstance(schema.get("format"), str):
        language = of_format(schema["format"])
    if language is not None:
        found.append(language)
    return found


def _excluded_patterns(places: list[Place]) -> list[Expression]:
    """Texts in which there is a pattern that there may not be."""
    found = []
    for place in places:
        assert isinstance(place.value, dict)
        for pattern in place.value.get(NOT_PATTERN, ()):
            try:
                found.append(searched(pattern, in_json=True, broad=True))
            except GrammarRefused as error:
                raise error.within(place.where) from error
    return found


def excluded_strings(places: list[Place]) -> list[str]:
    return [
        value
        for place in places
        if isinstance(place.value, dict)
        for value in place.value.get(NOT, ())
        if isinstance(value, str)
    ]
