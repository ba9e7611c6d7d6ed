"""Whether what an answer makes of one schema can be valid for another one: for `oneOf`."""

from __future__ import annotations

from nic_frontend.grammar.instance import Checker
from nic_frontend.grammar.keywords import named_types, types_of
from nic_frontend.grammar.objects import Shape
from nic_frontend.grammar.place import Place
from nic_frontend.grammar.references import References
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.vocabulary import ALL_TYPES, CHOICES

MAX_DEPTH = 6


class Exclusion:
    def __init__(self, references: References, checker: Checker) -> None:
        self._references = references
        self._checker = checker
        self._depth = 0

    def between(self, made: Place, other: Place) -> bool:
        """That no answer for `made` is valid for `other` is certain."""
        try:
            return self._excluded((made,), (other,))
        except GrammarRefused:
            return False

    def _excluded(self, made: tuple[Place, ...], other: tuple[Place, ...]) -> bool:
        places, others = self._references.expanded(made), self._references.expanded(other)
        if places is None or others is None:
            return True
        if not places or not others or self._depth > MAX_DEPTH:
            return False
        self._depth += 1
        try:
            return (
                self._by_types(places, others)
                or self._by_values(places, others)
                or self._by_members(places, others)
            )
        finally:
            self._depth -= 1

    def _by_types(self, places: list[Place], others: list[Place]) -> bool:
        accepted = ALL_TYPES
        for place in others:
            accepted &= named_types(place)
        return not types_of(places) & accepted

    def _by_values(self, places: list[Place], others: list[Place]) -> bool:
        for some, rest in ((places, others), (others, places)):
            for place in some:
                assert isinstance(place.value, dict)
                values = [place.value["const"]] if "const" in place.value else place.value.get("enum")
                if values is not None and not any(
                    all(self._checker.valid(value, inner) for inner in rest) for value in values
                ):
                    return True
        return False

    def _by_members(self, places: list[Place], others: list[Place]) -> bool:
        """By a property that one needs and the other cannot have, or has otherwise."""
        if types_of(places) != {"object"}:
            return False
        mine, its = Shape(places, self._checker), Shape(others, self._checker)
        open_ended = any(
            keyword in place.value for place in places if isinstance(place.value, dict) for keyword in CHOICES
        )
        more = open_ended or mine.others() is not None or bool(mine.patterns())
        for name in mine.required | its.required:
            my_spec, its_spec = mine.spec(name), its.spec(name)
            if its_spec is None and name in mine.required:
                return True
            if name in its.required and (my_spec is None or (name not in mine.names and not more)):
                return True
            if my_spec and its_spec and self._excluded(my_spec, its_spec):
                return True
        return False
