"""The value of an integer constant expression of C++, in terms of constants that are known by name."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

TOKEN = re.compile(r"\s*(0[xX][0-9a-fA-F]+|\d+|[A-Za-z_]\w*|<<|>>|<=|>=|==|!=|&&|\|\||.)", flags=re.S)
SIZES = {"float": 4, "uint32_t": 4, "uint64_t": 8, "float4": 16, "uint4": 16}
# C++'s binary operators, those that bind least first.
LEVELS: tuple[dict[str, Callable[[int, int], int]], ...] = (
    {"||": lambda a, b: int(bool(a or b))},
    {"&&": lambda a, b: int(bool(a and b))},
    {"|": operator.or_},
    {"&": operator.and_},
    {"==": operator.eq, "!=": operator.ne},
    {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt},
    {"<<": operator.lshift, ">>": operator.rshift},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.floordiv, "%": operator.mod},
)


@dataclass(frozen=True)
class Template:
    """A variable template: `template <int Groups> constexpr uint32_t kDepth = Groups == 1 ? 8 : 4`."""

    parameters: tuple[str, ...]
    expression: str


Names = dict[str, int | str | Template]  # a constant's value, its expression, or a template


class Unknown(ValueError):
    """The expression names what is no known integer."""


def evaluate(expression: str, names: Names) -> int:
    """Raises Unknown."""
    reader = _Reader(expression, names)
    value = reader.ternary()
    if reader.tokens:
        raise Unknown(f"'{expression}' goes on with '{reader.tokens[0]}'")
    return value


class _Reader:
    """Recursive descent: a method for each kind of operand, `tokens` what is left."""

    def __init__(self, expression: str, names: Names) -> None:
        plain = re.sub(r"(\b(?:0[xX][0-9a-fA-F]+|\d+))[uU]?[lL]{0,2}\b", r"\1", expression.strip())
        self.tokens: list[str] = TOKEN.findall(plain)
        self._names = names

    def ternary(self) -> int:
        condition = self._binary(0)
        if not self._take("?"):
            return condition
        first = self.ternary()
        self._expect(":")
        second = self.ternary()
        return first if condition else second

    def _binary(self, level: int) -> int:
        if level == len(LEVELS):
            return self._operand()
        value = self._binary(level + 1)
        while self.tokens and self.tokens[0] in LEVELS[level]:
            operation = LEVELS[level][self.tokens.pop(0)]
            value = int(operation(value, self._binary(level + 1)))
        return value

    def _operand(self) -> int:
        token = self.tokens.pop(0) if self.tokens else ""
        if token == "(":
            value = self.ternary()
            self._expect(")")
            return value
        if token == "-":
            return -self._operand()
        if token == "sizeof":
            self._expect("(")
            name = self.tokens.pop(0)
            self._expect(")")
            if name not in SIZES:
                raise Unknown(f"sizeof({name})")
            return SIZES[name]
        if token[:1].isdigit():
            return int(token, 0)
        return self._named(token)

    def _named(self, name: str) -> int:
        found = self._names.get(name)
        if isinstance(found, Template):
            self._expect("<")
            arguments = [self._operand()]
            while self._take(","):
                arguments.append(self._operand())
            self._expect(">")
            bound: Names = dict(zip(found.parameters, arguments, strict=True))
            return evaluate(found.expression, self._names | bound)
        if found is None:
            raise Unknown(f"'{name}' is no integer constant")
        return found if isinstance(found, int) else evaluate(found, self._names)

    def _take(self, token: str) -> bool:
        if self.tokens[:1] != [token]:
            return False
        self.tokens.pop(0)
        return True

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise Unknown(f"expected '{token}' before '{' '.join(self.tokens)}'")
