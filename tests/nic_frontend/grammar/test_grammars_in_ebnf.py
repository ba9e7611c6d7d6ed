"""Grammars in EBNF, of llama.cpp and of Lark."""

from __future__ import annotations

import pytest
from walking import taken

from nic_frontend.grammar.ebnf import of_ebnf
from nic_frontend.grammar.refusal import GrammarRefused

SQL = """
root ::= select_statement
select_statement ::= "SELECT " column " from " table " where " condition
column ::= "col_1 " | "col_2 "
table ::= "table_1 " | "table_2 "
condition ::= column "= " number
number ::= "1 " | "2 "
"""
ARITHMETIC = r"""
# as llama.cpp has it, where a space may also be the end of a line
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
CALCULATOR = """
?start: sum
?sum: product (("+" | "-") product)*   // a comment
?product: atom
     | product_of_atoms -> many
product_of_atoms.2: atom ("*" atom)+
?atom: NUMBER | "(" sum ")"
%import common.NUMBER
%import common.WS
%ignore WS
"""
JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER | "true" | "false" | "null"
array: "[" [value ("," value)*] "]"
object: "{" [pair ("," pair)*] "}"
pair: string ":" value
string: ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""


@pytest.mark.parametrize(
    ("grammar", "good", "bad"),
    [
        (SQL, ["SELECT col_1  from table_1  where col_2 = 1 "], ["SELECT ", ""]),
        (ARITHMETIC, ["a=1\n", "(a*(b+1))= 3\n", "x_1 +2=y\nz=0\n"], ["a+=1\n", "(a=1\n"]),
        (CALCULATOR, ["1 + 2*(3-4)", " 1", "1.5e3*2"], ["1+", "()", "1 2"]),
        (JSON, ['{"a": [1, {"b": null}], "c": []}', '"x\\"y"', "[[ ]]"], ['{"a"}', "[1,]"]),
        (r'root ::= "a"{2,3} [^"\n]? "\x41\u00e9\\"', ["aaAé\\", "aaaxAé\\"], ["aAé\\", 'aa"Aé\\']),
        ('root ::= "x"\nroot-2 ::= .', ["x"], ["y"]),
        ('start: "a"i~2..3 ["b"] /c+|d/ "0".."9"', ["aAbcc3", "aad0"], ["ac1", "aabb1"]),
        ('start: (A | B)+\nA: "a" "x"\nB: "b"', ["axb", "bax"], ["a", ""]),
    ],
)
def test_languages(grammar: str, good: list[str], bad: list[str]) -> None:
    assert taken(of_ebnf(grammar), *good) == [True] * len(good)
    assert taken(of_ebnf(grammar), *bad) == [False] * len(bad)


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ('root ::= foo\n"a"', "'foo' is not defined"),
        ('a ::= "x"', "no rule 'root'"),
        ('a: "x"', "no rule 'start'"),
        ("", "no rule"),
        ('root ::= "x"\n\nroot ::= "y"', r"twice \(at line 3\)"),
        ('root ::= ("x"', r"'\)' is missing"),
        ('root ::= "x" )', r"expected \(at line 1\)"),
        ('root ::= "x', "not understood"),
        ('root ::= "x"{3,2}', "wrong order"),
        ('root ::= "x"{9999999}', "too large"),
        ('start: /a/i "b"', "the flags 'i'"),
        ("start: /(a/", r"'\)' is missing .* \(at line 1\)"),
        ("start: WS\n%import common.FOO", "'common.FOO' is not known"),
        ('start: "x"\n%declare A', "not supported"),
        ("root ::= " + "(" * 500, "nested too deeply"),
        ('root ::= "\\U7fffffff"', "names no character"),
    ],
)
def test_what_is_refused(grammar: str, why: str) -> None:
    with pytest.raises(GrammarRefused, match=why):
        of_ebnf(grammar)
