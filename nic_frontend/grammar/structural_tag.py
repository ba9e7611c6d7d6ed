"""Structural tags: answers in which tags stand, in free text or by themselves.

A tag is a beginning, a content that has a form, and an end. As xgrammar and vLLM have them: {"structures":
[...], "triggers": [...]}, or {"format": {...}}. What cannot be enforced is refused with its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from nic_frontend.grammar.ebnf import of_ebnf
from nic_frontend.grammar.expression import (
    EMPTY,
    NOTHING,
    Expression,
    any_of,
    literal,
    optional,
    repeated,
    sequence,
)
from nic_frontend.grammar.free_text import FreeText
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.regex import matched
from nic_frontend.grammar.schema import of_schema
from nic_frontend.grammar.spelling import Places, Spelling
from nic_frontend.grammar.tag_place import At

MAX_REPEATED = 1_000

FIELDS = {
    "any_text": {"excludes"},
    "const_string": {"value"},
    "dispatch": {"rules", "loop", "excludes"},
    "grammar": {"grammar"},
    "json_schema": {"json_schema"},
    "optional": {"content"},
    "or": {"elements"},
    "plus": {"content"},
    "regex": {"pattern"},
    "repeat": {"content", "min", "max"},
    "sequence": {"elements"},
    "star": {"content"},
    "tag": {"begin", "content", "end"},
    "tags_with_separator": {"tags", "separator", "at_least_one", "stop_after_first"},
    "triggered_tags": {"triggers", "tags", "at_least_one", "stop_after_first", "excludes"},
}
# Others that there are, with the values that ask for nothing.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "any_order": (None, False),
    "excludes": (None, []),
    "max_chars": (None,),
    "max_tokens": (None,),
    "max_whitespace_cnt": (None,),
    "style": (None, "json"),
}


def of_structural_tag(document: Any, special: Places, thought: Expression = EMPTY) -> Expression:
    """`special`: where the texts of special tokens begin in a text. `thought`: how an answer does not begin,
    because then the model thinks.

    Raises GrammarRefused.
    """
    return Reader(Spelling(special)).document(document, thought)


class Reader:
    def __init__(self, spelling: Spelling) -> None:
        self._spelling = spelling
        self._formats: dict[str, Callable[[dict[str, Any], At], Expression]] = {
            "any_text": self._any_text,
            "const_string": self._const_string,
            "dispatch": self._dispatch,
            "grammar": self._grammar,
            "json_schema": self._json_schema,
            "optional": lambda given, at: self._repeated(given, at, 0, 1),
            "or": self._or,
            "plus": lambda given, at: self._repeated(given, at, 1, None),
            "regex": self._regex,
            "repeat": self._repeat,
            "sequence": self._sequence,
            "star": lambda given, at: self._repeated(given, at, 0, None),
            "tag": self._tag_alone,
            "tags_with_separator": self._tags_with_separator,
            "triggered_tags": self._triggered_tags,
        }

    def document(self, document: Any, thought: Expression) -> Expression:
        at = At("#", None, thought)
        document = at.object(document)
        if "format" in document:
            at.fields(document, {"type", "format"})
            return self._format(document["format"], at.last("format"))
        if "structures" not in document:
            raise at.refused("it must have a 'format', or 'structures' and 'triggers'")
        at.fields(document, {"type", "structures", "triggers"})
        tags = []
        for i, structure in enumerate(at.items(document, "structures")):
            here = at.inner("structures", i)
            structure = here.object(structure)
            here.fields(structure, {"begin", "schema", "end"})
            if "schema" not in structure:
                raise here.refused("'schema' is missing")
            end = self._ends(structure, here)
            content = schema_at(structure["schema"], here.inner("schema"))
            tags.append((here.string(structure, "begin"), followed(content, end), here))
        return self._triggered(document, tags, at)

    def _format(self, given: Any, at: At) -> Expression:
        """The texts of a format, with what follows them."""
        given = at.object(given)
        return self._formats[kind_of(given, at)](given, at)

    # ---------------------------------------------------------------- of a length that shows where they end

    def _const_string(self, given: dict[str, Any], at: At) -> Expression:
        return followed(self._spelling.texts(at.string(given, "value")), at.ends)

    def _json_schema(self, given: dict[str, Any], at: At) -> Expression:
        if "json_schema" not in given:
            raise at.refused("'json_schema' is missing")
        return followed(schema_at(given["json_schema"], at.inner("json_schema")), at.ends)

    def _regex(self, given: dict[str, Any], at: At) -> Expression:
        return followed(made(matched, at.string(given, "pattern"), at.inner("pattern")), at.ends)

    def _grammar(self, given: dict[str, Any], at: At) -> Expression:
        return followed(made(of_ebnf, at.string(given, "grammar"), at.inner("grammar")), at.ends)

    def _sequence(self, given: dict[str, Any], at: At) -> Expression:
        elements = at.items(given, "elements")
        parts = [self._format(one, at.inner("elements", i)) for i, one in enumerate(elements[:-1])]
        here = at if len(elements) == 1 else replace(at, begun=EMPTY)
        return sequence(*parts, self._format(elements[-1], here.last("elements", len(parts))))

    def _or(self, given: dict[str, Any], at: At) -> Expression:
        elements = enumerate(at.items(given, "elements"))
        return any_of(self._format(one, at.last("elements", i)) for i, one in elements)

    def _repeated(self, given: dict[str, Any], at: At, least: int, most: int | None) -> Expression:
        if "content" not in given:
            raise at.refused("'content' is missing")
        return followed(repeated(self._format(given["content"], at.inner("content")), least, most), at.ends)

    def _repeat(self, given: dict[str, Any], at: At) -> Expression:
        least, most = given.get("min"), given.get("max")
        for name, value in (("min", least), ("max", most)):
            if not isinstance(value, int) or isinstance(value, bool) or value > MAX_REPEATED:
                raise at.inner(name).refused(f"{name!r} must be an integer up to {MAX_REPEATED}")
        assert isinstance(least, int)
        assert isinstance(most, int)
        if least < 0 or (most < least and most != -1):
            raise at.refused("'min' must be at least 0 and at most 'max', which may be -1")
        return self._repeated(given, at, least, None if most == -1 else most)

    # ---------------------------------------------------------------- tags

    def _tag(self, given: Any, at: At) -> tuple[str, Expression]:
        """How it begins, and all that comes behind that."""
        given = at.object(given)
        if kind_of({"type": "tag", **given}, at) != "tag":
            raise at.refused("it must be a tag")
        if "content" not in given:
            raise at.refused("'content' is missing")
        here = replace(at.inner("content"), ends=self._ends(given, at))
        return at.string(given, "begin"), self._format(given["content"], here)

    def _ends(self, given: dict[str, Any], at: At) -> tuple[bytes, ...]:
        """Ways in which the end of a tag is written. None at all where it has no end of its own."""
        end = given.get("end")
        texts = end if isinstance(end, list) else [end]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise at.refused("'end' must be a text, or some of which each is an end")
        if "" in texts and len(texts) > 1:
            raise at.refused("'end' may be empty only by itself")
        return tuple(way for text in texts if text for way in self._spelling.ways(text))

    def _tag_alone(self, given: dict[str, Any], at: At) -> Expression:
        begin, rest = self._tag(given, at)
        return followed(sequence(self._spelling.texts(begin), rest), at.ends)

    def _tags(self, given: dict[str, Any], at: At) -> list[tuple[str, Expression, At]]:
        here = [at.inner("tags", i) for i in range(len(at.items(given, "tags")))]
        return [(*self._tag(one, place), place) for one, place in zip(given["tags"], here, strict=True)]

    def _any_tag(self, tags: list[tuple[str, Expression, At]]) -> Expression:
        return any_of(sequence(self._spelling.texts(begin), rest) for begin, rest, _ in tags)

    def _tags_with_separator(self, given: dict[str, Any], at: At) -> Expression:
        tag = self._any_tag(self._tags(given, at))
        separator = self._spelling.texts(at.string(given, "separator", may_be_empty=True))
        more = EMPTY if at.boolean(given, "stop_after_first") else repeated(sequence(separator, tag))
        found = sequence(tag, more)
        return followed(found if at.boolean(given, "at_least_one") else optional(found), at.ends)

    # ---------------------------------------------------------------- free text

    def _any_text(self, given: dict[str, Any], at: At) -> Expression:
        return self._free([], given, at, loops=True)

    def _triggered_tags(self, given: dict[str, Any], at: At) -> Expression:
        return self._triggered(given, self._tags(given, at), at)

    def _triggered(self, given: dict[str, Any], tags: list[tuple[str, Expression, At]], at: At) -> Expression:
        """Each tag behind the one trigger that it begins with. Free text has none, with a tag or not."""
        triggers = at.items(given, "triggers")
        if not all(isinstance(trigger, str) and trigger for trigger in triggers):
            raise at.inner("triggers").refused("'triggers' must be texts, none of them empty")
        stops = [(way, NOTHING) for trigger in triggers for way in self._spelling.ways(trigger)]
        for begin, rest, here in tags:
            fitting = [trigger for trigger in triggers if begin.startswith(trigger)]
            if len(fitting) != 1:
                how = "one trigger" if not fitting else "one trigger alone"
                raise here.refused(f"'begin' must begin with {how}")
            for mark, left in self._spelling.beginnings(fitting[0], begin):
                stops.append((mark, sequence(literal(left), rest)))
        loops = not at.boolean(given, "stop_after_first")
        if not at.boolean(given, "at_least_one"):
            return self._free(stops, given, at, loops)
        first = self._any_tag(tags)
        if not loops:
            return followed(first, at.ends)
        return sequence(first, self._free(stops, given, replace(at, begun=EMPTY), loops))

    def _dispatch(self, given: dict[str, Any], at: At) -> Expression:
        stops = []
        for i, rule in enumerate(at.items(given, "rules")):
            here = at.inner("rules", i)
            if not isinstance(rule, list) or len(rule) != 2 or not isinstance(rule[0], str) or not rule[0]:
                raise here.refused("a rule must be a text and a format")
            content = self._format(rule[1], here.inner(1))
            stops += [(mark, content) for mark in self._spelling.ways(rule[0])]
        return self._free(stops, given, at, at.boolean(given, "loop", default=True))

    def _free(
        self, stops: list[tuple[bytes, Expression]], given: dict[str, Any], at: At, loops: bool
    ) -> Expression:
        """Free text; behind a mark comes what belongs to it, and then, if it `loops`, free text again."""
        if at.ends == ():
            raise at.refused("free text is supported only where an answer ends, or in a tag with an end")
        excluded = given.get("excludes") or []
        if not isinstance(excluded, list) or not all(isinstance(one, str) and one for one in excluded):
            raise at.inner("excludes").refused("'excludes' must be texts, none of them empty")
        closing = {*dict(stops), *(at.ends or ())}
        without = []
        for text in excluded:
            ways = self._spelling.ways(text)
            if any(way in mark for way in ways for mark in closing):
                raise at.inner("excludes").refused(
                    f"{text!r} is in a trigger or an end, which could not come"
                )
            without += ways
        behind: dict[bytes, list[Expression]] = {}
        for mark, rest in stops:
            behind.setdefault(mark, []).append(rest)
        marks = [*behind, *(at.ends or ())]

        def stretch(begun: Expression) -> tuple[Expression, Expression]:
            """Up to a mark, with what comes behind it; and the last one."""
            text = FreeText(marks, without, begun)
            last = text.whole() if at.ends is None else any_of(map(text.until, at.ends))
            return any_of(sequence(text.until(mark), any_of(rest)) for mark, rest in behind.items()), last

        marked, last = stretch(EMPTY)
        first_marked, first_last = (marked, last) if at.begun is EMPTY else stretch(at.begun)
        if marked is NOTHING:
            return first_last
        more = sequence(repeated(marked), last) if loops else followed(EMPTY, at.ends)
        return any_of([first_last, sequence(first_marked, more)])


def kind_of(given: dict[str, Any], at: At) -> str:
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in FIELDS:
        raise at.refused(f"'type' must be one of {', '.join(FIELDS)}; it is {str(kind)[:60]!r}")
    for name in sorted(given.keys() - FIELDS[kind] - {"type"}):
        if given[name] not in NEUTRAL.get(name, ()):
            raise at.inner(name).refused(f"{name!r} is not supported")
    return kind


def followed(content: Expression, ends: tuple[bytes, ...] | None) -> Expression:
    return sequence(content, any_of(map(literal, ends))) if ends else content


def made(make: Callable[[Any], Expression], source: Any, at: At) -> Expression:
    try:
        return make(source)
    except GrammarRefused as error:
        raise error.within(at.where) from error


def schema_at(schema: Any, at: At) -> Expression:
    return made(of_schema, schema, at)
