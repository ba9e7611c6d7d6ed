"""Arguments as Python writes them, and as models do that know its syntax: always JSON."""

# ruff: noqa: E501 (tables are wide)

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from found_calls import parsed, strict_json
from hypothesis import given, settings
from hypothesis import strategies as st

READ: list[tuple[str, Any]] = [
    (r"a='\\ \' \" \a\b\f\n\r\t\v'", {"a": "\\ ' \" \a\b\f\n\r\t\v"}),
    (r"a='\0 \101\7 \x41 \u00e9 \U0001F600 \N{EM DASH}'", {"a": "\0 A\a A é 😀 —"}),
    (r"a='\ud83d\ude00', b='\ud83d', c='\ude00\ud83d\x41'", {"a": "😀", "b": "\ufffd", "c": "\ufffd\ufffdA"}),
    (r'a="\d\/\ "', {"a": r"\d\/\ "}),  # which mean nothing in Python
    ('a="one\\\ntwo\\\r\nthree"', {"a": "onetwothree"}),
    ('a="one\ntwo\r\n\tthree"', {"a": "one\ntwo\r\n\tthree"}),
    ('''a=\'\'\'it's '' "\n\'\'\', b="""""", c='', d=""''', {"a": "it's '' \"\n", "b": "", "c": "", "d": ""}),
    ("""a=('x' "y"\n  r'\\d' u'z'), b='' ''""", {"a": "xy\\dz", "b": ""}),
    (r"""a=r'\d\'\n', b=R"\"", c=U'\n'""", {"a": r"\d\'\n", "b": r"\"", "c": "\n"}),
    ("a=True, b=False, c=None, d=[true, false, null]", {"a": True, "b": False, "c": None, "d": [True, False, None]}),
    ("a=[], b=(), c=(1), d=(1,), e=((1, 2), [3,],), f={}", {"a": [], "b": [], "c": 1, "d": [1], "e": [[1, 2], [3]], "f": {}}),
    ("""a={'x': {"y": [None, {}]}, 'z' 'z': 1,}""", {"a": {"x": {"y": [None, {}]}, "zz": 1}}),
    (" a = 1 ,\n\tb\n=\n2 , ", {"a": 1, "b": 2}),
    ("", {}),
    ("from=1, class=2, lambda=3, None=4, true=5", {"from": 1, "class": 2, "lambda": 3, "None": 4, "true": 5}),
    ("user-id=1, x.y=2, $ref=3, @type=4, xml:lang=5, 1st=6, größe=7", {"user-id": 1, "x.y": 2, "$ref": 3, "@type": 4, "xml:lang": 5, "1st": 6, "größe": 7}),
    ("""**{'two words': 1, "it's": 2}, a=3, **{}, ** {'': 4},""", {"two words": 1, "it's": 2, "a": 3, "": 4}),
    ("a='<|python_end|>)]', b=']'", {"a": "<|python_end|>)]", "b": "]"}),
]  # fmt: skip
NUMBERS = [
    ("123456789012345678901234567890", "123456789012345678901234567890"),
    ("0.1000000000000000055511151231257827", "0.1000000000000000055511151231257827"),
    ("1e999", "1e999"), ("-1E+999", "-1E+999"), ("- 1.5e-3", "-1.5e-3"), ("+7", "7"), ("-0", "-0"),
    ("1.", "1.0"), (".5", "0.5"), ("1.e5", "1.0e5"), ("007.5", "7.5"), ("08e1", "8e1"), ("00", "0"), ("0_0", "0"),
    ("1_000.000_1e1_0", "1000.0001e10"), ("0x1F", "31"), ("0XfF_f", "4095"), ("-0o17", "-15"), ("0b_101", "5"),
    ("1" * 5_000, "1" * 5_000),
]  # fmt: skip
REFUSED = [
    "1", "a=1, 2", "*[1]", "**x", "*{'a': 1}", "a=b", "a=b.c", "a=g()", "a=1+2", "a=1j", "a=1 2", "a=--1", "a=-True", "a=~1",
    "a=007", "a=1_", "a=1__0", "a=0x", "a=0xg", "a=0b2", "a=1e", "a=.", "a=.e5", "a=1.2.3", "a=٣", "a=0x" + "f" * 2_000,
    "a=inf", "a=nan", "a=NaN", "a=Infinity", "a=float('inf')", "a=Falsehood", "a=not 1", "a=...", "a={1, 2}", "a={1: 2}", "a={**b}",
    "a={'x'}", "a=[,]", "a=[1,,2]", "a=(,)", "a=1,,", ",", "a", "a=", "a==1", "a<=1", "a:=1", "a-=1", "a=1 # why\n", "a=b'x'", "a=f'x'",
    "a=rb'x'", r"a='\x4'", r"a='\u12g4'", r"a='\U00110000'", r"a='\N{NO SUCH NAME}'", r"a='\N'", "a=[1)", "a=" + "[" * 300 + "]" * 300,
]  # fmt: skip


def read(arguments: str) -> str | None:
    """What comes of a call with these, however it is cut. None: all of it is text."""
    answer = f"[f({arguments})]"
    found = parsed("pythonic", [answer])
    assert parsed("pythonic", list(answer)) == found
    if found == [("text", answer)]:
        return None
    ((name, text),) = found
    assert name == "f"
    return text


@pytest.mark.parametrize(("arguments", "expected"), READ, ids=range(len(READ)))
def test_arguments(arguments: str, expected: Any) -> None:
    text = read(arguments)
    assert text is not None
    assert list(strict_json(text).items()) == list(expected.items())


@pytest.mark.parametrize(("written", "expected"), NUMBERS, ids=range(len(NUMBERS)))
def test_numbers_keep_their_digits(written: str, expected: str) -> None:
    text = read(f"a={written}, b=[{written}]")
    assert text == f'{{"a": {expected}, "b": [{expected}]}}'
    strict_json(text, parse_int=str)


@pytest.mark.parametrize("arguments", REFUSED, ids=range(len(REFUSED)))
def test_what_is_no_literal_is_text(arguments: str) -> None:
    assert read(arguments) is None


PARTS = [*"\\\\\\'\"nxuUN{}0178ab \n", "é", "''", '""', "\\u00e9", "\\x41"]


@settings(max_examples=200, deadline=None)
@given(text=st.lists(st.sampled_from(PARTS), max_size=12).map("".join))
@pytest.mark.filterwarnings("ignore::SyntaxWarning", "ignore::DeprecationWarning")
def test_strings_are_those_of_python(text: str) -> None:
    for quote in ("'", '"', "'''", '"""'):
        written = f"{quote}{text}{quote}"
        try:
            value = ast.literal_eval(written)
        except (SyntaxError, ValueError):
            continue
        assert read(f"a={written}") == json.dumps({"a": value}, ensure_ascii=False)
