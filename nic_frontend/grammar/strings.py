"""Strings of a schema: lengths, patterns, formats. With a pattern or a format, a string is written in one way
only.
"""

from __future__ import annotations

from nic_frontend.grammar import characters
from nic_frontend.grammar.expression import Expression, any_of, both, literal, repeated, sequence, without
from nic_frontend.grammar.expression import characters as one_character
from nic_frontend.grammar.formats import UNENFORCED, of_format
from nic_frontend.grammar.json_text import QUOTE, quoted, string
from nic_frontend.grammar.keywords import bounds_of
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import searched
from nic_frontend.grammar.vocabulary import NOT, NOT_PATTERN

PLAIN = one_character(characters.ALL, in_json=True)
ANYTHING = repeated(PLAIN)


def strings(places: list[Place]) -> Expression:
    """Strings that are valid for all of the schemas."""
    least, most = bounds_of(places, "minLength", "maxLength")
    languages = [language for place in places for language in conditions(place)]
    excluded = excluded_strings(places)
    unwanted = _excluded_patterns(places)
    if not languages and not excluded and not unwanted:
        return string(least, most)
    if least or most is not None:
        languages.append(repeated(PLAIN, least, most))
    found = within(languages, excluded)
    for language in unwanted:
        found = without(found, language)
    return sequence(QUOTE, found, QUOTE)


def within(languages: list[Expression], excluded: list[str]) -> Expression:
    """What is in all of the languages, and none of the excluded texts, as they stand between quotes."""
    found = languages[0] if languages else ANYTHING
    for language in languages[1:]:
        found = both(found, language)
    if excluded:
        found = without(found, any_of([literal(quoted(text)[1:-1]) for text in excluded]))
    return found


def conditions(place: Place) -> list[Expression]:
    """What a schema's pattern and format say."""
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
    if isinstance(schema.get("format"), str) and (language := of_format(schema["format"])) is not None:
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
