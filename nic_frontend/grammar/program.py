"""An expression as a program for the native compiler."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator

from nic_frontend.grammar.abi import GRAMMAR_GREEDY, GRAMMAR_NO_LIMIT, GrammarOp
from nic_frontend.grammar.expression import EMPTY, Expression, Rule
from nic_frontend.grammar.refusal import GrammarRefused

SMALL = 12  # states: to call what has fewer would save none
MANY = 1 << 24
MAX_WORDS = 1 << 20

Key = tuple[int, ...]


class Program:
    """`words` are uint32; `rules` the names of its rules, the first of which is the answer.

    Raises GrammarRefused where it would be too large.
    """

    def __init__(self, root: Expression) -> None:
        self.words = array("I")
        self.rules: list[str] = ["the answer"]
        self._nodes = array("I")
        self._n_nodes = 0
        self._known: dict[Expression, int] = {}
        self._alike: dict[Key, int] = {}
        self._called = _called_rules(root)
        self._numbers = {rule: 1 + i for i, rule in enumerate(self._called)}
        roots = [root, *(rule.body or EMPTY for rule in self._called)]
        nodes = [self._node(expression) for expression in roots]
        flags = [0, *(GRAMMAR_GREEDY if rule.greedy else 0 for rule in self._called)]
        self.rules += [rule.name for rule in self._called]
        self.words.extend((self._n_nodes, len(nodes)))
        self.words.extend(self._nodes)
        self.words.extend(node | flag for node, flag in zip(nodes, flags, strict=True))

    def _node(self, root: Expression) -> int:
        """Its number. What it is made of comes first; nothing here recurs, however deep it is."""
        waiting = [root]
        while waiting:
            expression = waiting[-1]
            if expression in self._known:
                waiting.pop()
                continue
            expression_inner = self._inner(expression)
            missing = [inner for inner in expression_inner if inner not in self._known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._known[expression] = self._add(
                expression, [self._known[inner] for inner in expression_inner]
            )
        return self._known[root]

    def _inner(self, expression: Expression) -> tuple[Expression, ...]:
        rule = expression.rule
        if rule is None or rule in self._numbers:
            return expression.inner
        return (rule.body or EMPTY,)

    def _add(self, expression: Expression, inner: list[int]) -> int:
        if expression.rule is not None and expression.rule not in self._numbers:
            return inner[0]  # its body stands in the place of the call
        numbers = [self._numbers[expression.rule]] if expression.rule is not None else expression.numbers
        key = (expression.op, *inner, *numbers)
        if expression.rule is None and (known := self._alike.get(key)) is not None:
            return known  # of calls, each may be compiled in its own way
        self._nodes.extend((expression.op, len(inner) + len(numbers), *inner, *numbers))
        if len(self._nodes) > MAX_WORDS:
            raise GrammarRefused("it is too large for this server")
        self._alike[key] = self._n_nodes
        self._n_nodes += 1
        return self._n_nodes - 1


def _called_rules(root: Expression) -> list[Rule]:
    """Those that stay rules: what calls itself, and what is large and used in several places."""
    uses: Counter[Rule] = Counter()
    order: list[Rule] = []
    bodies: dict[Rule, list[Rule]] = {}
    waiting: list[tuple[Rule | None, Expression]] = [(None, root)]
    while waiting:
        owner, body = waiting.pop()
        called = bodies.setdefault(owner, []) if owner is not None else []
        for rule, times in calls_of(body):
            called.append(rule)
            uses[rule] += times
            if rule not in bodies:
                bodies[rule] = []
                order.append(rule)
                waiting.append((rule, rule.body or EMPTY))
    recursive = _recursive(bodies)
    sizes: dict[Expression, int] = {}
    return [
        rule
        for rule in order
        if rule.shared
        or rule in recursive
        or (uses[rule] > 1 and _size(rule.body or EMPTY, sizes, recursive) > SMALL)
    ]


def calls_of(root: Expression) -> Iterator[tuple[Rule, int]]:
    """The rules that an expression calls by itself, and how often its graph would have each."""
    seen: set[tuple[Expression, bool]] = set()
    waiting = [(root, False)]
    while waiting:
        expression, many = waiting.pop()
        if expression.rule is not None:
            yield expression.rule, 2 if many else 1
            continue
        if (expression, many) in seen:
            many = True  # in several places
            if (expression, many) in seen:
                continue
        seen.add((expression, many))
        if expression.op == GrammarOp.REPEAT:
            least, most = expression.numbers
            many = many or least > 1 or 1 < most < GRAMMAR_NO_LIMIT
        waiting += [(inner, many) for inner in expression.inner]


def _recursive(bodies: dict[Rule, list[Rule]]) -> set[Rule]:
    """Rules that call themselves, maybe through others (Tarjan's components, without recursion)."""
    found: set[Rule] = set()
    index: dict[Rule, int] = {}
    low: dict[Rule, int] = {}
    component: list[Rule] = []
    inside: set[Rule] = set()
    for start in bodies:
        if start in index:
            continue
        path = [(start, iter(bodies[start]))]
        index[start] = low[start] = len(index)
        component.append(start)
        inside.add(start)
        while path:
            rule, rest = path[-1]
            following = next(rest, None)
            if following is None:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[rule])
                if low[rule] == index[rule]:
                    members = []
                    while True:
                        members.append(component.pop())
                        inside.discard(members[-1])
                        if members[-1] is rule:
                            break
                    if len(members) > 1 or rule in bodies[rule]:
                        found.update(members)
            elif following not in index:
                index[following] = low[following] = len(index)
                component.append(following)
                inside.add(following)
                path.append((following, iter(bodies[following])))
            elif following in inside:
                low[rule] = min(low[rule], index[following])
    return found


def _size(root: Expression, known: dict[Expression, int], recursive: set[Rule]) -> int:
    """About how many states it has."""
    waiting = [root]
    while waiting:
        expression = waiting[-1]
        rule = expression.rule
        inner = expression.inner
        if rule is not None:
            inner = () if rule in recursive or rule.shared or rule.body is None else (rule.body,)
        missing = [part for part in inner if part not in known]
        if missing and expression not in known:
            waiting += missing
            continue
        waiting.pop()
        known[expression] = min(_own_size(expression, [known[part] for part in inner]), MANY)
    return known[root]


def _own_size(expression: Expression, inner: list[int]) -> int:
    if expression.op == GrammarOp.BYTES:
        return len(expression.numbers)
    if expression.op == GrammarOp.MULTIPLE:
        divisor, places = expression.numbers
        return divisor * (places + 1)
    if expression.op == GrammarOp.REPEAT:
        least, most = expression.numbers
        return inner[0] * max(1, least if most == GRAMMAR_NO_LIMIT else most)
    return 1 + sum(inner)
