"""Every schema of the JSON Schema Test Suite: enforced exactly, or refused by name.

What is exact is judged by `jsonschema`: what an answer may be is valid, and of the suite's values no invalid
one is taken.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from walking import MAX_WORDS, RandomAnswers

from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.numbers import exact
from nic_frontend.grammar.refusal import GrammarRefused
from nic_frontend.grammar.schema import of_schema
from ringbuffer.grammar import Grammar, accepts, unpack

SUITE = Path(__file__).parent / "suite"


def multiple_of(validator: Any, step: Any, value: Any, schema: Any) -> Iterator[Any]:
    """As the decimals say. `jsonschema` divides doubles, and does not take 0.3 for a multiple of 0.1."""
    if validator.is_type(value, "number") and exact(value) % exact(step) != 0:
        yield jsonschema.ValidationError(f"{value} is not a multiple of {step}")


def exactly(validator: Any) -> Any:
    return jsonschema.validators.extend(validator, {"multipleOf": multiple_of})


VALIDATORS = {
    "draft2020-12": exactly(jsonschema.Draft202012Validator),
    "draft2019-09": exactly(jsonschema.Draft201909Validator),
    "draft7": exactly(jsonschema.Draft7Validator),
    "draft6": exactly(jsonschema.Draft6Validator),
    "draft4": exactly(jsonschema.Draft4Validator),
}
# What must be enforced of each draft: fewer would be a step back.
ENFORCED = {"draft2020-12": 355, "draft2019-09": 357, "draft7": 277, "draft6": 244, "draft4": 177}
ANSWERS = {"draft2020-12": 20}  # to each schema
FEWER = 5  # of drafts that share most schemas with it


def cases(draft: str) -> Iterator[tuple[str, Any, list[Any]]]:
    """A name, a schema, and values."""
    for line in (SUITE / f"{draft}.jsonl").read_text().splitlines():
        case = json.loads(line)
        schema = case["schema"]
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {"$schema": VALIDATORS[draft].META_SCHEMA.get("$schema"), **schema}
        yield f"{case['of']}: {case['description']}", schema, case["values"]


def grammar_of(schema: Any) -> Grammar | str:
    """The grammar, or why there is none."""
    try:
        return unpack(compiled(of_schema(schema), MAX_WORDS))
    except GrammarRefused as error:
        return str(error)


def check(name: str, schema: Any, values: list[Any], draft: str, grammar: Grammar, answers: int) -> None:
    dialect = VALIDATORS[draft]
    formats = dialect.FORMAT_CHECKER if "format" in name else None
    validator = dialect(schema, format_checker=formats)
    random_answers = RandomAnswers(grammar, random.Random(7))
    for _ in range(answers):
        answer = random_answers.one()
        if answer is not None:
            assert validator.is_valid(json.loads(answer)), f"{name}: {answer!r} is not valid for {schema}"
    for value in values:
        written = (json.dumps(value, ensure_ascii=escapes) for escapes in (False, True))
        texts = [text.encode("utf-8", "surrogatepass") for text in written]
        if any(accepts(grammar, text) for text in texts):
            assert validator.is_valid(value), f"{name}: {value!r} is taken, and not valid for {schema}"


@pytest.mark.slow
@pytest.mark.parametrize("draft", VALIDATORS)
def test_schemas_are_enforced_or_refused(draft: str) -> None:
    enforced = 0
    for name, schema, values in cases(draft):
        grammar = grammar_of(schema)
        if isinstance(grammar, str):
            assert "(at #" in grammar or grammar == "no answer can satisfy it", (name, grammar)
            continue
        enforced += 1
        try:
            check(name, schema, values, draft, grammar, ANSWERS.get(draft, FEWER))
        except (jsonschema.exceptions._WrappedReferencingError, re.error):
            continue  # the validator does not know what a schema refers to, or its regular expression
    assert enforced >= ENFORCED[draft]


def test_some_of_them() -> None:
    """Every twelfth, as a quick look."""
    for name, schema, values in list(cases("draft2020-12"))[::12]:
        grammar = grammar_of(schema)
        if isinstance(grammar, Grammar):
            check(name, schema, values, "draft2020-12", grammar, 2)
