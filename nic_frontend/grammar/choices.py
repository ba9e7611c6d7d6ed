"""Schemas that leave a choice: `anyOf`, `oneOf`, `not`, `if`, `dependentRequired` and their like."""

from __future__ import annotations

import itertools
from typing import Any

from nic_frontend.grammar.exclusion import Exclusion
from nic_frontend.grammar.instance import Checker
from nic_frontend.grammar.negation import Negation
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.vocabulary import ASSERTIONS, CHOICES, OPPOSITE

Alternative = tuple[Place, ...]  # a value must be valid for all of them
MAX_ALTERNATIVES = 256
BESIDE_OPPOSITES = Place({OPPOSITE: True}, "", "")


class Choices:
    def __init__(self, references: References, checker: Checker) -> None:
        self._negation = Negation(references)
        self._exclusion = Exclusion(references, checker)
        self._known: dict[int, tuple[Place | None, list[list[Alternative]]]] = {}
        self._kept: list[Place] = []

    def split(self, place: Place) -> tuple[Place | None, list[list[Alternative]]]:
        """A schema without its choices, if anything is left, and of each choice the alternatives."""
        schema = place.value
        assert isinstance(schema, dict)
        if not any(keyword in schema for keyword in CHOICES):
            return place, []
        if id(schema) not in self._known:
            rest = {keyword: value for keyword, value in schema.items() if keyword not in CHOICES}
            says = any(keyword in ASSERTIONS for keyword in rest)
            left = Place(rest, place.where, place.base) if says else None
            self._kept.append(place)
            self._known[id(schema)] = left, self._choices(place, schema)
        return self._known[id(schema)]

    def _choices(self, place: Place, schema: dict[str, Any]) -> list[list[Alternative]]:
        found: list[list[Alternative]] = []
        if "anyOf" in schema:
            found.append([(inner,) for inner in _listed(place, "anyOf")])
        if "oneOf" in schema:
            found.append(self._exactly_one(place))
        if "not" in schema:
            opposites = self._negation.of(place.inner(schema["not"], "not"))
            found.append([(inner, BESIDE_OPPOSITES) for inner in opposites])
        if "if" in schema and ("then" in schema or "else" in schema):
            found.append(self._condition(place, schema))
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name, needs in schema.get(keyword, {}).items():
                found.append(_dependent(place, keyword, name, needs))
        return found

    def _exactly_one(self, place: Place) -> list[Alternative]:
        """Of each two that may both be valid, the one without the other."""
        listed = _listed(place, "oneOf")
        found: list[Alternative] = []
        for i, inner in enumerate(listed):
            others = [
                other
                for k, other in enumerate(listed)
                if k != i and not self._exclusion.between(inner, other)
            ]
            try:
                without = [self._negation.of(other) for other in others]
            except GrammarRefused as error:
                raise GrammarRefused(
                    f"more than one of its alternatives may be valid, and {error}",
                    f"{place.where}/oneOf",
                ) from error
            found += [
                (inner, *chosen) for chosen in itertools.islice(itertools.product(*without), MAX_ALTERNATIVES)
            ]
        return found

    def _condition(self, place: Place, schema: dict[str, Any]) -> list[Alternative]:
        condition = place.inner(schema["if"], "if")
        then = (place.inner(schema["then"], "then"),) if "then" in schema else ()
        otherwise = (place.inner(schema["else"], "else"),) if "else" in schema else ()
        opposites = self._negation.of(condition)
        return [(condition, *then), *((inner, BESIDE_OPPOSITES, *otherwise) for inner in opposites)]


def _listed(place: Place, keyword: str) -> list[Place]:
    assert isinstance(place.value, dict)
    given = place.value[keyword]
    if len(given) > MAX_ALTERNATIVES:
        raise GrammarRefused(f"more than {MAX_ALTERNATIVES} alternatives", f"{place.where}/{keyword}")
    return [place.inner(inner, keyword, i) for i, inner in enumerate(given)]


def _dependent(place: Place, keyword: str, name: str, needs: Any) -> list[Alternative]:
    """Without the property, or with it and what it needs."""
    where = f"{place.where}/{keyword}/{name}"
    absent = Place({"properties": {name: False}}, where, place.base)
    if isinstance(needs, list):
        return [(absent,), (Place({"required": [name, *needs]}, where, place.base),)]
    present = Place({"required": [name]}, where, place.base)
    return [(absent,), (present, place.inner(needs, keyword, name))]
