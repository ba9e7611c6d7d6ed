"""Draws bodies that are as large as they may be: one or more places of a request grow to just below, to, or
just above a limit.
"""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

from fuzz.body_cases import Drawer
from fuzz.large_shapes import (
    BOUNDS,
    GROWING_SCHEMAS,
    LISTS,
    MAPS,
    NESTED,
    PIECES,
    SCHEMAS,
    SIZE,
    TEXTS,
    WHOLE,
    Make,
    Place,
    body_of,
    listed,
    mapped,
    nested,
    text,
    within,
)

DEEPEST = 5  # fields within fields, in which something grows
COUNTS = (1, 16, 128, 1000, 1024, 2048, 10_000, 1 << 15, 1 << 16, 1 << 19, 1 << 20)  # that fields may have
NUMBERS = ("7", "7.0", "7.5", "-1", "0.1", "1e400", "1e-400", "9" * 300, "0." + "9" * 300, "-0.0")
ITEMS = (
    *NUMBERS,
    "[]",
    "{}",
    '""',
    '"x#"',
    "null",
    "true",
    '{"a":#}',
    "[[7.5]]",
    '{"type":"text","text":"x"}',
)
NESTS = (
    nested(),
    nested("[", "", "]"),
    nested('[{"a":', "7.5", "}]"),
    nested('{"a":[1.5],"b":', '"x"', "}"),
    nested('{"type":"object","properties":{"a":', WHOLE, "}}"),
)
# The mock backend would write for minutes: as many tokens as it may, or scores of a long prompt.
ALWAYS_LEFT_OUT = {"prompt_logprobs", "max_completion_tokens", *BOUNDS.values()}


class LargeCase(NamedTuple):
    path: str
    body: bytes


class LargeDrawer:
    def __init__(
        self, rng: random.Random, endpoints: dict[str, dict[str, Any]], schemas: dict[str, Any]
    ) -> None:
        self._rng, self._endpoints, self._schemas = rng, endpoints, schemas
        self._drawer = Drawer(rng, schemas, 0.0)

    def case(self) -> LargeCase:
        form = self._rng.randrange(8)
        if form < 2:
            places = [self._known()]
        elif form == 2:
            places = [self._one(SCHEMAS)(self._one(GROWING_SCHEMAS))]
        else:
            places = self._described(1 if form < 6 else self._rng.choice([2, 3]))
        grown = [(place.field, place.make(self._amount(place, len(places)))) for place in places]
        others = {name: value for place in places for name, value in place.others.items()}
        return LargeCase(places[0].path, body_of(places[0].path, others, grown))

    def _one(self, named: dict[str, Any]) -> Any:
        return named[self._rng.choice([*named])]

    def _known(self) -> Place:
        kinds = (
            lambda: self._one(LISTS),
            lambda: self._one(MAPS),
            lambda: self._one(TEXTS)(text(self._one(PIECES))),
            lambda: self._one(NESTED)(self._rng.choice(NESTS)),
            lambda: self._one(NESTED)(within('{"a":', listed(self._rng.choice(ITEMS)), "}")),
        )
        place: Place = self._rng.choice(kinds)()
        return place

    def _amount(self, place: Place, among: int) -> int:
        """How many of what it grows by, where so many places share a body."""
        rng, most = self._rng, place.most()
        largest = 1 + 2 * most.get("size", SIZE)
        first, form = min(most.values(), default=1), rng.random()
        if form < 0.6:
            n = first // among + rng.choice([-1, 0, 0, 1])
        elif form < 0.75:
            n = rng.choice([*most.values(), 1]) // among + rng.choice([-1, 0, 1])
        elif form < 0.9:
            n = int(first * rng.random()) // among
        else:
            n = rng.choice(COUNTS) + rng.choice([-1, 0, 1])
        return max(0, min(n, largest))

    def _described(self, n: int) -> list[Place]:
        """Up to `n` places of one body, found in the description of the API."""
        rng = self._rng
        path = rng.choice([*self._endpoints])
        root = self._schemas[self._endpoints[path]["$ref"].rsplit("/", 1)[1]]
        share = rng.choice([0.0, 0.0, 0.05, 0.2])
        others = {
            name: self._drawer.value(of, 1)
            for name, of in root["properties"].items()
            if name not in ALWAYS_LEFT_OUT and (name in root["required"] or rng.random() < share)
        }
        places: list[Place] = []
        for name in rng.sample([*root["properties"]], len(root["properties"])):
            may_grow = name not in ALWAYS_LEFT_OUT and len(places) < n
            if may_grow and (make := self._growing(root["properties"][name], 0)) is not None:
                places.append(Place(path, name, make))
                others.pop(name, None)
        return [place._replace(others=others) for place in places]

    def _growing(self, schema: dict[str, Any], depth: int) -> Make | None:
        """What a schema describes, with one place that grows; None where it has none."""
        rng = self._rng
        if depth > DEEPEST or "enum" in schema or "const" in schema:
            return None
        if reference := schema.get("$ref"):
            return self._growing(self._schemas[reference.rsplit("/", 1)[1]], depth)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                options = rng.sample(schema[choice], len(schema[choice]))
                return next(filter(None, (self._growing(option, depth) for option in options)), None)
        match schema.get("type"):
            case "string":
                return text(self._one(PIECES))
            case "array":
                return self._growing_array(schema.get("items", {}), depth)
            case "object":
                return self._growing_object(schema, depth)
            case "integer" | "number":
                return (lambda n: "9" * max(1, n)) if rng.random() < 0.1 else None
            case None:
                return self._growing_anything()
            case _:
                return None

    def _growing_array(self, items: dict[str, Any], depth: int) -> Make:
        if self._rng.random() < 0.4 and (inner := self._growing(items, depth + 1)) is not None:
            return within("[", inner, "]")
        if self._rng.random() < 0.3:
            return listed(self._rng.choice(ITEMS))
        return listed(json.dumps(self._drawer.value(items, 3)))

    def _growing_object(self, schema: dict[str, Any], depth: int) -> Make | None:
        of_all = schema.get("additionalProperties")
        if "properties" not in schema:
            if isinstance(of_all, dict) and self._rng.random() < 0.5:
                return mapped(json.dumps(self._drawer.value(of_all, 3)), self._rng.choice(["x#", "#"]))
            return self._growing_anything()
        for name in self._rng.sample([*schema["properties"]], len(schema["properties"])):
            if (inner := self._growing(schema["properties"][name], depth + 1)) is not None:
                others = {
                    other: self._drawer.value(schema["properties"][other], depth + 1)
                    for other in schema.get("required", [])
                    if other != name
                }
                return within(
                    json.dumps(others)[:-1] + ("," if others else "") + json.dumps(name) + ":", inner, "}"
                )
        return None

    def _growing_anything(self) -> Make:
        makes = (
            self._one(GROWING_SCHEMAS),
            self._rng.choice(NESTS),
            mapped(self._rng.choice(ITEMS)),
            within('{"a":', listed(self._rng.choice(ITEMS)), "}"),
        )
        made: Make = self._rng.choice(makes)
        return made


def draw_large(seed: int, endpoints: dict[str, dict[str, Any]], schemas: dict[str, Any]) -> LargeCase:
    """`endpoints`: the schema of each path's body, which refers to one of `schemas`."""
    return LargeDrawer(random.Random(seed), endpoints, schemas).case()
