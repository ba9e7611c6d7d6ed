"""Schemas and where they stand: `$ref`, `$id`, `$anchor` and JSON pointers within one document.

What `$dynamicRef` and `$recursiveRef` mean depends on the way to them. They are followed where there is only
one schema that they can mean.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import unquote, urldefrag

from nic_frontend.grammar.place import Place, escaped, joined, place
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.shapes import check
from nic_frontend.grammar.vocabulary import ASSERTIONS, MORE_ITEMS, MORE_PROPERTIES, UNSUPPORTED

MAX_SCHEMAS = 10_000
MAX_NESTING = 100
MAX_COMBINED = 200
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
SINGLE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not",
    "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
UNEVALUATED = {str(own): own for own in (MORE_PROPERTIES, MORE_ITEMS)}
REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
RECURSIVE = "#"  # among the names of dynamic anchors: no name begins so
OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")  # there `$ref` stands alone


def _dynamic_names(value: dict[str, Any]) -> list[str]:
    """Names by which a dynamic reference finds a schema."""
    name = value.get("$dynamicAnchor")
    names = [name] if isinstance(name, str) else []
    return [*names, RECURSIVE] if value.get("$recursiveAnchor") is True else names


def _open(here: Place) -> Place:
    assert isinstance(here.value, dict)
    for keyword in UNEVALUATED:
        if keyword in here.value:
            raise GrammarRefused(
                f"{keyword!r} is supported only in the outermost of combined schemas",
                f"{here.where}/{keyword}",
            )
    return here


class References:
    """Finds what references mean. Raises GrammarRefused for a document that is too large."""

    def __init__(self, document: Any) -> None:
        dialect = document.get("$schema") if isinstance(document, dict) else None
        self.alone = isinstance(dialect, str) and any(draft in dialect for draft in OLD_DRAFTS)
        self.root = place(document, "#", "", self.alone)
        self._resources: dict[str, Place] = {"": self.root}
        self._anchors: dict[str, Place] = {}
        self._dynamic: Counter[str] = Counter()  # anchors of that kind, by name
        self._closings: dict[int, Place] = {}
        self._ends: set[int] = set()  # schemas from which references and `allOf` lead back to none
        self._index()

    def _index(self) -> None:
        waiting = [(self.root, 0)]
        seen = 0
        while waiting:
            here, depth = waiting.pop()
            seen += 1
            if seen > MAX_SCHEMAS:
                raise GrammarRefused(f"it has more than {MAX_SCHEMAS} schemas", here.where)
            if depth > MAX_NESTING:
                raise GrammarRefused("schemas are nested too deeply", here.where)
            if isinstance(here.value, bool):
                continue
            self._name(here)
            waiting += [(inner, depth + 1) for inner in children(here)]

    def _name(self, here: Place) -> None:
        value = here.value
        assert isinstance(value, dict)
        if self.alone and "$ref" in value:
            return
        if isinstance(name := value.get("$id"), str):
            if name.startswith("#"):
                self._anchors[joined(here.base, name, f"{here.where}/$id")] = here
            else:
                self._resources[urldefrag(here.base).url] = here
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(name := value.get(keyword), str):
                self._anchors[urldefrag(here.base).url + "#" + name] = here
        for name in _dynamic_names(value):
            self._dynamic[name] += 1

    def targets(self, here: Place) -> list[Place]:
        """What the references of a schema mean.

        Raises GrammarRefused where one is not in the document, may mean several schemas, or leads back.
        """
        self._check_end(here)
        return self._targets(here)

    def _check_end(self, here: Place) -> None:
        """Raises GrammarRefused for a schema that is said to be valid where it is valid: by itself, it says
        nothing, and the standard leaves its meaning open. Without recursion, because a chain may be long.
        """
        path: list[tuple[Place, list[Place]]] = []  # with what each leads to and was not looked at
        on_path: set[int] = set()
        waiting = [here]
        while waiting or path:
            if waiting:
                place = waiting.pop()
                if id(place.value) in on_path:
                    raise GrammarRefused("it refers only to itself", place.where)
                if isinstance(place.value, bool) or id(place.value) in self._ends:
                    continue
                on_path.add(id(place.value))
                path.append((place, self._combined(place)))
            place, rest = path[-1]
            if rest:
                waiting.append(rest.pop())
                continue
            path.pop()
            on_path.discard(id(place.value))
            self._ends.add(id(place.value))

    def _combined(self, here: Place) -> list[Place]:
        """The schemas that whatever is valid for this one must be valid for, too."""
        assert isinstance(here.value, dict)
        parts = here.value.get("allOf")
        if not isinstance(parts, list) or ("$ref" in here.value and self.alone):
            parts = []
        inner = [here.inner(part, "allOf", i) for i, part in enumerate(parts) if isinstance(part, dict)]
        return [*self._targets(here), *inner]

    def _targets(self, here: Place) -> list[Place]:
        assert isinstance(here.value, dict)
        found = []
        for keyword in REFERENCES:
            if keyword not in here.value:
                continue
            found.append(target := self._follow(here, here.value[keyword], keyword))
            wanted = RECURSIVE if keyword == "$recursiveRef" else urldefrag(here.value[keyword]).fragment
            is_dynamic = isinstance(target.value, dict) and wanted in _dynamic_names(target.value)
            if keyword != "$ref" and is_dynamic and self._dynamic[wanted] > 1:
                raise GrammarRefused(f"{keyword!r} may mean several schemas", f"{here.where}/{keyword}")
        return found

    def _follow(self, here: Place, reference: Any, keyword: str) -> Place:
        """What a reference at a place means. Raises GrammarRefused if it is not in the document."""
        where = f"{here.where}/{keyword}"
        if not isinstance(reference, str):
            raise GrammarRefused("a reference must be a string", where)
        url, fragment = urldefrag(joined(here.base, reference, where))
        resource = self._resources.get(url)
        if resource is None:
            raise GrammarRefused(f"{reference!r} refers to another document, which is not read", where)
        if not fragment:
            return resource
        if fragment.startswith("/"):
            return self._pointed(resource, unquote(fragment), where)
        found = self._anchors.get(f"{url}#{fragment}")
        if found is None:
            raise GrammarRefused(f"nothing is called {reference!r}", where)
        return found

    def expanded(self, spec: tuple[Place, ...]) -> list[Place] | None:
        """The schemas that a value must be valid for, with those that they refer to or combine (`$ref`,
        `allOf`), and without those that say nothing. None: there is no such value.
        """
        found: list[Place] = []
        seen: set[int] = set()
        waiting = list(reversed(spec))
        while waiting:
            here = waiting.pop()
            if here.value is False:
                return None
            if here.value is True or id(here.value) in seen:
                continue
            seen.add(id(here.value))
            if len(seen) > MAX_COMBINED:
                raise GrammarRefused("too many schemas are combined", here.where)
            for keyword in UNSUPPORTED:
                if keyword in here.value:
                    raise GrammarRefused(f"{keyword!r} is not supported", f"{here.where}/{keyword}")
            more = self.targets(here)
            if not ("$ref" in here.value and self.alone):
                check(here)
                parts = here.value.get("allOf", [])
                more += [here.inner(part, "allOf", i) for i, part in enumerate(parts)]
                if any(keyword in ASSERTIONS for keyword in here.value):
                    found.append(self._closed(here) if here in spec and len(spec) == 1 else _open(here))
            waiting += reversed(more)
        return found

    def _closed(self, here: Place) -> Place:
        """The outermost schema, where `unevaluatedProperties` and its like mean whatever is left."""
        assert isinstance(here.value, dict)
        if not any(keyword in here.value for keyword in UNEVALUATED):
            return here
        if id(here.value) not in self._closings:
            value = {UNEVALUATED.get(keyword, keyword): inner for keyword, inner in here.value.items()}
            self._closings[id(here.value)] = Place(value, here.where, here.base, self.alone)
        return self._closings[id(here.value)]

    def _pointed(self, resource: Place, pointer: str, where: str) -> Place:
        value: Any = resource.value
        found, base = resource.where, resource.base
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                value = value[_index(step)] if isinstance(value, list) else value[step]
            except (KeyError, IndexError, ValueError, TypeError):
                raise GrammarRefused(f"nothing stands at {pointer!r}", where) from None
            found = f"{found}/{escaped(step)}"
            if isinstance(value, dict) and isinstance(name := value.get("$id"), str):
                base = joined(base, name, f"{found}/$id")
        if not isinstance(value, dict | bool):
            raise GrammarRefused(f"there is no schema at {pointer!r}", where)
        return Place(value, found, base, self.alone)


def _index(step: str) -> int:
    """Of an item. Raises ValueError for what a JSON pointer does not call one."""
    if not (step.isascii() and step.isdigit()):
        raise ValueError(step)
    return int(step)


def children(here: Place) -> list[Place]:
    """The schemas within a schema."""
    value = here.value
    found: list[Place] = []
    if isinstance(value, bool):
        return found
    for keyword, inner in value.items():
        if keyword in SINGLE and isinstance(inner, dict | bool):
            found.append(here.inner(inner, keyword))
        elif (keyword in LISTS or keyword == "items") and isinstance(inner, list):
            found += [here.inner(item, keyword, i) for i, item in enumerate(inner)]
        elif keyword in MAPS and isinstance(inner, dict):
            found += [
                here.inner(item, keyword, name)
                for name, item in inner.items()
                if isinstance(item, dict | bool)
            ]
    return found
