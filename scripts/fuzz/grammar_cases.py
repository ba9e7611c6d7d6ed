"""Draws what clients ask their answers to be: schemas, patterns, grammars and structural tags that are deep,
wide, long, counted high, or that refer to themselves.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import reduce
from typing import Any

from nic_frontend.compiling.store import Source

MOST_PARTS = 100  # of a schema: behind those, it has no more within others
KEYWORDS = ("allOf", "anyOf", "oneOf")
NUMBERS = (0, 1, -1, 2, 7, 0.5, 1e-14, 5e-324, 1e308, 2**31, 2**32, 2**53 - 1, 10**400, 10**4200)
COUNTS = (0, 1, 2, 3, 12, 100, 1000, 65_535, 65_536, 2**31, 2**32, 2**53 - 1, 1e300)
PATTERNS = (
    "^(a+)+$", "^(a|a)*b$", "(a*)*", r"^\w{1,64}$", r"\W", r"\P{L}+", "(a|b)*a(a|b){12}", "^(?!.*aa)[ab]+$",
    "^(?=.*b)(?=.*c).*$", "(a{1,99}){1,99}", "[^\\W\\d]{3}", "x{65535}", "^$", "(", "a{2,1}", "\\", "[a-",
)  # fmt: skip
TEXTS = ("", "a", "a" * 40 + "!", "é", "\ud800", "\n", '"', "漢" * 30, "x" * 5000, "ab" * 20)
FORMATS = ("date-time", "uri", "uri-reference", "email", "ipv6", "uuid", "duration", "regex", "x" * 3000)


class Drawer:
    def __init__(self, seed: int) -> None:
        self.source = random.Random(seed)
        self._left = MOST_PARTS

    def case(self) -> Source:
        kinds: tuple[Callable[[], Source], ...] = (
            self._schema, self._schema, self._schema, self._regex, self._grammar, self._tag, self._tools,
        )  # fmt: skip
        return self.source.choice(kinds)()

    def _one(self, values: Any) -> Any:
        return self.source.choice(values)

    def _much(self) -> int:
        """How often something is there: mostly little."""
        return int(self._one((1, 1, 2, 2, 3, 5, 20, 100, 400)))

    def _schema(self) -> Source:
        schema = self.schema(4)
        if self.source.random() < 0.4:
            schema = self._definitions(schema)
        return _content("json", schema)

    def schema(self, depth: int) -> Any:
        source = self.source
        self._left -= 1
        depth = depth if self._left > 0 else 0
        made = self._plain(depth)
        for _ in range(source.randrange(3)):
            made |= self._keyword(depth)
        wrap = source.random()
        if wrap < 0.1:
            keyword, levels = self._one((*KEYWORDS, "not", "items", "properties")), self._much()
            made = reduce(lambda inner, _: self._wrapped(keyword, inner), range(levels), made)
        return made

    def _wrapped(self, keyword: str, inner: Any) -> Any:
        if keyword in KEYWORDS:
            return {keyword: [inner]}
        return {"properties": {"a": inner}} if keyword == "properties" else {keyword: inner}

    def _plain(self, depth: int) -> dict[str, Any]:
        kind = self._one(("string", "number", "integer", "array", "object", "values", "any"))
        if kind == "string":
            fields = {"pattern": PATTERNS, "format": FORMATS, "minLength": COUNTS, "maxLength": COUNTS}
            return {"type": kind, **self._some(fields)}
        if kind in ("number", "integer"):
            fields = {"minimum": NUMBERS, "exclusiveMaximum": NUMBERS, "multipleOf": NUMBERS}
            return {"type": kind, **self._some(fields)}
        if kind == "array":
            return {"type": kind, **self._array(depth)}
        if kind == "object":
            return {"type": kind, **self._object(depth)}
        if kind == "values":
            values = [self.value(3) for _ in range(self._much())]
            return {"const": values[0]} if self.source.random() < 0.3 else {"enum": values}
        return {}

    def _some(self, fields: dict[str, Any]) -> dict[str, Any]:
        return {name: self._one(values) for name, values in fields.items() if self.source.random() < 0.4}

    def _array(self, depth: int) -> dict[str, Any]:
        names = ("minItems", "maxItems", "minContains", "maxContains")
        made = self._some(dict.fromkeys(names, COUNTS))
        if depth and self.source.random() < 0.6:
            made["items"] = self.schema(depth - 1)
        if depth and self.source.random() < 0.3:
            made["contains"] = self.schema(depth - 1)
        if depth and self.source.random() < 0.2:
            made["prefixItems"] = [self.schema(0) for _ in range(self._much())]
        if self.source.random() < 0.2:
            made["uniqueItems"] = True
        return made

    def _object(self, depth: int) -> dict[str, Any]:
        names = [self._one(("a", "b", "é", "a" * 40 + "!", f"p{i}")) for i in range(self._much())]
        made = {"properties": {name: self.schema(depth - 1) if depth else {} for name in names}}
        made |= self._some({"minProperties": COUNTS, "maxProperties": COUNTS})
        if self.source.random() < 0.5:
            made["required"] = names  # type: ignore[assignment]
        if self.source.random() < 0.3:
            made["patternProperties"] = {pattern: {} for pattern in self.source.sample(PATTERNS, 3)}
        if self.source.random() < 0.3:
            made["additionalProperties"] = self.source.random() < 0.5  # type: ignore[assignment]
        return made

    def _keyword(self, depth: int) -> dict[str, Any]:
        if not depth:
            return {}
        keyword = self._one((*KEYWORDS, "not", "if", "dependentSchemas", "propertyNames", "$ref"))
        if keyword in KEYWORDS:
            return {keyword: [self.schema(depth - 1) for _ in range(min(self._much(), 20))]}
        if keyword == "$ref":
            return {
                keyword: self._one(
                    ("#", "#/$defs/d0", "#/anyOf/0", "#/anyOf/-1", "#/" + "9" * 5000, "http://[")
                )
            }
        if keyword == "if":
            return {name: self.schema(depth - 1) for name in ("if", "then", "else")}
        if keyword == "dependentSchemas":
            return {keyword: {"a": self.schema(depth - 1)}}
        return {keyword: self.schema(depth - 1)}

    def _definitions(self, schema: Any) -> Any:
        """Each refers to the next, several times over."""
        n, fan = min(self._much(), 40), self._one((1, 1, 2, 3))
        keyword = self._one(KEYWORDS)
        chain = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"} for _ in range(fan)]} for i in range(n)}
        return {
            **schema,
            "$defs": {**chain, f"d{n}": self._one(({"type": "integer"}, {"$ref": "#/$defs/d0"}))},
        }

    def value(self, depth: int) -> Any:
        kind = self.source.randrange(7 if depth else 5)
        if kind < 2:
            return self._one(TEXTS)
        if kind < 4:
            return self._one(NUMBERS)
        if kind == 4:
            return self._one((None, True, False))
        if kind == 5:
            deep = reduce(lambda inner, _: [inner], range(self._much()), self.value(0))
            return [deep, *(self.value(depth - 1) for _ in range(self.source.randrange(4)))]
        return {self._one(TEXTS): self.value(depth - 1) for _ in range(self.source.randrange(4))}

    def pattern(self) -> str:
        source = self.source
        inner = self._one((*PATTERNS, r"\d", "[a-z]", "a", "(?:ab|cd)", ".", r"\p{Lu}", r"[\W\S]"))
        for _ in range(source.randrange(4)):
            wrap = self._one(
                ("({})*", "({}){{2,30}}", "(?:{}|b)", "^(?={}).*", "^(?!{}).*", "{}{}", "({})+$")
            )
            inner = wrap.replace("{}", inner).replace("{{", "{").replace("}}", "}")
        repeats = self._one((1, 1, 1, 50, 3000))
        return inner * repeats if len(inner) * repeats < 200_000 else inner

    def _regex(self) -> Source:
        return _content("regex", self.pattern())

    def _grammar(self) -> Source:
        source, n = self.source, self._one((1, 2, 10, 100, 2000))
        lines = []
        for i in range(n):
            other, count = source.randrange(n), self._one(("", "*", "+", "?", "{2,9}", "{70000}", "{,}"))
            body = self._one(
                ('"a" r{0}', "r{0} | [a-z]", '("x" r{0}){1}', "[^a]{1} r{0}?", 'r{0} "b" | "c"', "[", '"')
            )
            lines.append(
                f"r{i} ::= "
                + body.replace("{0}", str(other if source.random() < 0.5 else i + 1)).replace("{1}", count)
            )
        depth = self._much()
        root = "(" * depth + "r0" + ")?" * depth
        if source.random() < 0.2:
            return _content(
                "grammar", "start: A\n%import common.INT ->\n" + "\n".join(lines).replace("::=", ":")
            )
        return _content("grammar", "\n".join([f"root ::= {root}", *lines, f'r{n} ::= "z"']))

    def _tag(self) -> Source:
        form: dict[str, Any] = self._one(
            [
                {"type": "regex", "pattern": self.pattern()},
                {"type": "json_schema", "json_schema": self.schema(2)},
                {"type": "any_text"},
                {"type": "const_string", "value": "a"},
            ]
        )
        kind = self._one(("star", "plus", "optional", "tag"))
        for _ in range(self._much()):
            form = {"type": kind, "content": form} | (
                {"begin": "<a>", "end": "</a>"} if kind == "tag" else {}
            )
        return _content("structural_tag", {"format": form})

    def _tools(self) -> Source:
        tools = [[f"f{i}", self.schema(2), self.source.random() < 0.5] for i in range(min(self._much(), 20))]
        parser = self._one(("Hermes", "Llama3Json", "Mistral", "Pythonic"))
        return {"content": None, "tools": tools, "calls": [True, True, parser], "thinks": None}


def _content(kind: str, content: Any) -> Source:
    return {"content": [kind, content], "tools": [], "calls": [False, True, None], "thinks": None}


def draw_source(seed: int) -> Source:
    return Drawer(seed).case()
