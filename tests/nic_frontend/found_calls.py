"""What a parser of calls finds in an answer that comes in pieces, put together."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from hypothesis import strategies as st

from nic_frontend.parsing.delta import CallArguments, CallStart, Delta, Reasoning, Text
from nic_frontend.parsing.registry import TOOL_CALL_PARSERS

NAMES = frozenset({"f", "g"})
Found = list[tuple[str, str]]  # ("text", ...), ("reasoning", ...) or (name, arguments)


def collected(deltas: list[Delta]) -> Found:
    found: Found = []
    for delta in deltas:
        if isinstance(delta, CallStart):
            found.append((delta.name, ""))
            continue
        kind = {Text: "text", Reasoning: "reasoning"}.get(type(delta), "")
        if kind and (not found or found[-1][0] != kind):
            found.append((kind, ""))
        found[-1] = (found[-1][0], found[-1][1] + delta.text)
    return found


def parsed(name: str, pieces: Iterable[str], names: frozenset[str] = NAMES) -> Found:
    parser = TOOL_CALL_PARSERS[name](names)
    return collected([delta for piece in pieces for delta in parser.feed(piece)] + parser.finish())


def complete_arguments(name: str, answer: str) -> list[str]:
    """Of the calls that clients may run."""
    parser = TOOL_CALL_PARSERS[name](NAMES)
    deltas = [*parser.feed(answer), *parser.finish()]
    texts = ["" for _ in parser.calls.complete]
    for delta in deltas:
        if isinstance(delta, CallArguments):
            texts[delta.index] += delta.text
    return [text for text, is_complete in zip(texts, parser.calls.complete, strict=True) if is_complete]


@st.composite
def cut(draw: st.DrawFn, answers: st.SearchStrategy[str]) -> list[str]:
    text = draw(answers)
    cuts = sorted(draw(st.sets(st.integers(0, len(text)), max_size=8)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not in JSON")


def strict_json(text: str, **readers: Any) -> Any:
    """Raises ValueError for what only Python takes for JSON, and for what UTF-8 cannot write."""
    value = json.loads(text, parse_constant=_refuse, **readers)
    json.dumps(value, ensure_ascii=False).encode()
    return value
