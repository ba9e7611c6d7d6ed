"""What expressions mean, and what the native compiler makes of them."""

# ruff: noqa: E501 (expressions are long)

from __future__ import annotations

import random
from array import array

import pytest
from walking import MAX_WORDS, RandomAnswers, grammar_of, taken

from nic_frontend.grammar import expression as e
from nic_frontend.grammar.abi import GrammarLimits, GrammarStatus
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.expression import Expression, Rule
from nic_frontend.grammar.json_text import ANY, string
from nic_frontend.grammar.native import MOVES, NODES, compile_program
from nic_frontend.grammar.refusal import GrammarRefused
from ringbuffer.grammar import accepts
from ringbuffer.grammar_abi import GRAMMAR_ANY_PLAIN, GRAMMAR_MAX_STACK

AB = e.one_of("ab")
SMALL = e.characters([(0x61, 0x7A)])


def parentheses() -> Expression:
    rule = Rule("parentheses")
    rule.body = e.sequence(e.literal("("), e.repeated(e.call(rule)), e.literal(")"))
    return e.call(rule)


@pytest.mark.parametrize(
    ("language", "good", "bad"),
    [
        (e.literal("é"), ["é"], ["", "e", "éé"]),
        (e.any_of([e.literal("a"), e.literal("ab"), e.EMPTY]), ["", "a", "ab"], ["b"]),
        (e.repeated(AB, 2, 3), ["ab", "aba"], ["a", "abab"]),
        (e.repeated(AB, 0, 2), ["", "a", "bb"], ["aaa"]),
        (e.characters([(0x20, 0x10FFFF)]), ["a", "ß", "漢", "😀"], ["\n", "ab"]),
        (e.characters([(0, 0x22)], in_json=True), ["\\n", '\\"', "\\u0001", "!"], ['"', "\n", "\\u000a", "\\\\"]),
        (e.without(e.repeated(SMALL), e.literal("foo")), ["", "fo", "fooo"], ["foo", "F"]),
        (e.both(e.repeated(AB), e.sequence(e.repeated(SMALL), e.literal("a"))), ["a", "ba"], ["ab", "ca"]),
        (e.until("aab"), ["aab", "aaab", "baab"], ["aa", "aabaab", "aabb"]),
        (e.multiples(7), ["0", "7", "14", "98"], ["07", "15", ""]),
        (e.members(e.literal(","), [(e.literal("a"), False), (e.literal("b"), True), (e.literal("c"), False)]), ["b", "a,b", "a,b,c", "b,c"], ["", "a", "a,c", "b,a", "b,"]),
        (e.members(e.literal(","), [(e.literal("a"), False)], e.literal("x")), ["a", "x", "a,x,x"], ["", "x,a"]),
        (parentheses(), ["()", "(()())", "(" * 32 + ")" * 32], ["(", "())", "(" * 33 + ")" * 33]),
    ],
)  # fmt: skip
def test_languages(language: Expression, good: list[str], bad: list[str]) -> None:
    assert taken(language, *good) == [True] * len(good)
    assert taken(language, *bad) == [False] * len(bad)


def test_marks_that_are_special_tokens() -> None:
    """Nothing but the mark itself is let through of what begins as it."""
    grammar = grammar_of(e.until(b"\xff[/THINK]"))
    assert accepts(grammar, "Ω [/THINK]".encode() + b"\xff[/THINK]")
    assert not accepts(grammar, b"\xff[OTHER]\xff[/THINK]")
    assert not accepts(grammar_of(e.until("x")), b"\xff[OTHER]x")


def test_what_the_next_byte_does_not_decide_is_followed_both_ways() -> None:
    """Two rules that begin alike, and one that ends where what follows it could be its own."""
    first, second = Rule("first", shared=True), Rule("second", shared=True)
    first.body = e.sequence(e.repeated(e.literal("a"), 1), e.literal("x"))
    second.body = e.sequence(e.repeated(e.literal("a"), 1), e.literal("y"))
    assert taken(e.any_of([e.call(first), e.call(second)]), "aax", "aay", "aa") == [True, True, False]
    spaces = Rule("spaces", e.repeated(e.literal(" ")), shared=True)
    language = e.sequence(e.literal("a"), e.call(spaces), e.literal(" b"))
    assert taken(language, "a b", "a   b", "ab") == [True, True, False]


def test_a_rule_that_calls_itself_is_told_apart_where_it_ends() -> None:
    """Behind the outermost one a digit may stand, which within it would be its own."""
    rule = Rule("sum")
    operand = e.any_of(
        [e.repeated(e.one_of("01"), 1), e.sequence(e.literal("("), e.call(rule), e.literal(")"))]
    )
    rule.body = e.sequence(operand, e.repeated(e.sequence(e.literal("+"), operand)))
    language = e.sequence(e.call(rule), e.literal("0!"))
    assert taken(language, "10!", "(1+(0))+10!", "0!", "(1)0!") == [True, True, False, True]


def test_a_rule_that_can_only_take_what_follows_takes_it() -> None:
    """Where copies have no end, the language is a part of what was asked for."""
    rule = Rule("word")
    rule.body = e.sequence(
        e.any_of([e.literal("a"), e.sequence(e.literal("("), e.call(rule), e.repeated(e.literal(" ")), e.call(rule), e.literal(")"))]),
        e.repeated(e.literal(" ")),
    )  # fmt: skip
    assert taken(e.call(rule), "(a a)", "(a  (a a) )", "(a") == [True, True, False]


@pytest.mark.parametrize(
    ("language", "why"),
    [
        (e.NOTHING, "no answer"),
        (e.sequence(e.literal("a"), e.both(e.literal("b"), e.literal("c"))), "no answer"),
        (e.repeated(e.repeated(ANY, 0, 60_000), 0, 60_000), "more states|takes more|too large"),
        (e.without(e.repeated(AB), e.sequence(e.repeated(AB), e.literal("a"), e.repeated(AB, 40, 40))), "more states|takes more"),
    ],
)  # fmt: skip
def test_what_cannot_be_compiled(language: Expression, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        compiled(language, MAX_WORDS)


def test_rules_at_fault_are_named() -> None:
    left = Rule("left")
    left.body = e.any_of([e.sequence(e.call(left), e.literal("a")), e.literal("b")])
    with pytest.raises(GrammarRefused, match=r"begins with itself \(at left\)"):
        compiled(e.call(left), MAX_WORDS)
    deep = Rule("deep")
    deep.body = e.sequence(e.literal("("), e.call(deep), e.literal(")"))
    with pytest.raises(GrammarRefused, match="no answer"):
        compiled(e.call(deep), MAX_WORDS)


def test_a_block_that_does_not_fit() -> None:
    size = len(compiled(ANY, MAX_WORDS)) // 4
    assert compiled(ANY, size)
    with pytest.raises(GrammarRefused, match="too large"):
        compiled(ANY, size - 1)


def test_programs_that_are_none() -> None:
    """Whatever the words are, the compiler says so and nothing else happens."""
    source = random.Random(3)
    statuses = set()
    for _ in range(3000):
        words = (source.choice([0, 1, 2, 3, source.randrange(20)]) for _ in range(source.randrange(2, 24)))
        result, _ = compile_program(array("I", words), 1 << 14, GrammarLimits(MOVES, NODES, 1000))
        statuses.add(GrammarStatus(result.status))
    assert {GrammarStatus.BAD_PROGRAM, GrammarStatus.OK} <= statuses


def test_plain_characters_are_not_walked() -> None:
    """Free strings take any number of them, bounded ones what is left; that many live, in any choice."""
    grammar = grammar_of(e.any_of([string(), e.sequence(e.literal("x"), string(0, 5))]))
    assert (grammar.rows[:, 0] & GRAMMAR_ANY_PLAIN == GRAMMAR_ANY_PLAIN).any()
    bounded = grammar_of(string(2, 5))
    counts = sorted(set((bounded.rows[:, 0] & GRAMMAR_ANY_PLAIN).tolist()))
    assert counts == [0, 1, 2, 3, 4, 5]
    assert accepts(bounded, '"漢😀aé!"'.encode())


def test_what_is_nested_can_be_ended() -> None:
    """F18: random walks deep into nested values find no dead end."""
    grammar = grammar_of(ANY)
    assert grammar.stack_bound == GRAMMAR_MAX_STACK
    answers = RandomAnswers(grammar, random.Random(1))
    for _ in range(60):
        answers.one()
    assert accepts(grammar, b"[" * 31 + b"]" * 31)
