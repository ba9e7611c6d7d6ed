"""Whether the judges of scripts/bench/constrained_answers.py tell wrong answers from right ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bench import constrained_cases as cases
from bench.constrained_answers import Tally
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}}, "required": ["n"]}


def said(text: str | None, *calls: tuple[str, str], reason: str = "stop", **message: Any) -> dict[str, Any]:
    """A choice of a chat completion."""
    called = [{"function": {"name": name, "arguments": arguments}} for name, arguments in calls]
    return {"finish_reason": reason, "message": {"content": text, "tool_calls": called, **message}}


ADD = ("add", '{"n": 3}')
RIGHT: list[tuple[cases.Judge, dict[str, Any]]] = [
    (cases.is_valid(SCHEMA), said('{ "n": 3 }')),
    (cases.matches(r"[a-z]{2}\n"), said("ab\n")),
    (cases.is_one_of(["später", "7"]), said("später")),
    (cases.calls({"add": SCHEMA}, None), said(None, ADD, ADD, reason="tool_calls")),
]
WRONG: list[tuple[cases.Judge, dict[str, Any]]] = [
    (cases.is_valid(SCHEMA), said('{"n": 10}')),
    (cases.is_valid(SCHEMA), said('{"n": 3')),
    (cases.matches("[a-z]{2}"), said("ab\n")),
    (cases.matches(r"\d"), said("٣")),
    (cases.is_one_of(["später", "7"]), said("spät")),
    (cases.calls({"add": SCHEMA}, 1), said(None, ADD, ADD, reason="tool_calls")),
    (cases.calls({"add": SCHEMA}, None), said("So: ", ADD, reason="tool_calls")),
    (cases.calls({"add": SCHEMA}, None), said(None, ADD)),
    (cases.calls({"add": SCHEMA}, None), said(None, ("sub", '{"n": 3}'), reason="tool_calls")),
    (cases.calls({"add": SCHEMA}, None), said(None, ("add", '{"n": "3"}'), reason="tool_calls")),
    (cases.calls({"add": SCHEMA}, None), said(None, reason="tool_calls")),
    (cases.after_thoughts(cases.Case("x", {}, cases.is_valid(SCHEMA))).judge, said('{"n": 3}')),
]


@pytest.mark.parametrize(("judge", "choice"), RIGHT)
def test_what_is_right(judge: Callable[[Any], None], choice: dict[str, Any]) -> None:
    judge(choice)
    case = cases.after_thoughts(cases.Case("x", {}, judge))
    case.judge({**choice, "message": {**choice["message"], "reasoning_content": "Well."}})


@pytest.mark.parametrize(("judge", "choice"), WRONG)
def test_what_is_wrong(judge: Callable[[Any], None], choice: dict[str, Any]) -> None:
    with pytest.raises(cases.Wrong):
        judge(choice)


def test_cases_are_of_all_kinds_and_the_same_for_a_seed() -> None:
    found, again = cases.make_cases(200, 3, False), cases.make_cases(200, 3, False)
    kinds = {"schema", "regex", "choice", "grammar", "tags", "tools", "named tool"}
    assert {case.kind for case in found} == kinds
    assert [case.fields for case in found] == [case.fields for case in again]
    assert all(case.kind.endswith("after thoughts") for case in cases.make_cases(20, 3, True))


def test_answers_that_were_cut_or_refused_are_not_judged() -> None:
    case, tally = cases.Case("x", {}, cases.is_valid(SCHEMA)), Tally()
    for status, choice in ((200, said("{", reason="length")), (200, said("{")), (200, said('{"n": 1}'))):
        tally.judge(case, status, {"choices": [choice], "usage": {"completion_tokens": 5}})
    tally.judge(case, 429, {"error": "no slot"})
    assert (tally.cut, tally.kinds["x"], len(tally.wrong), tally.refused.total(), tally.tokens) == (
        1, 2, 1, 1, 15,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.alone
def test_no_answer_is_wrong(tmp_path: Path) -> None:
    command = [
        sys.executable, "scripts/bench/constrained_answers.py", "--device=cpu", "--answers=24", "--open=8",
        "--cases=24", "--processes=1", "--frontends=1", f"--out={tmp_path / 'record'}",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "record").read_text())["rows"]
    assert [(row["judged"] + row["cut"], row["wrong"], row["refused"]) for row in rows] == [
        (24, 0, 0), (6, 0, 0),
    ]  # fmt: skip
    assert all(row["spec_decode_num_draft_tokens_total"] > 0 for row in rows)
