"""Stop strings: against a reference that sees the whole text, and over HTTP across token boundaries."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from harness import StartBackend, StartFrontend, wait_until
from hypothesis import given
from hypothesis import strategies as st
from scripted_answers import say
from sse import events, finish_reasons, text_of
from tokenizers import Tokenizer

from nic_frontend.api.parameters import MAX_STOP_CHARACTERS
from nic_frontend.api.schema.generation import MAX_STOPS
from nic_frontend.text.stop import StopAutomaton, StopStrings
from ringbuffer.token_bytes import byte_level_alphabet

STOP_FILE = sys.modules[StopStrings.__module__].__file__


def reference(text: str, stops: list[str], include: bool) -> tuple[str, str | None]:
    """The text up to the stop string that is completed first; of several together the first listed."""
    for end in range(len(text) + 1):
        for stop in stops:
            if text[:end].endswith(stop):
                return text[: end if include else end - len(stop)], stop
    return text, None


small = st.text(alphabet="ab😀", max_size=30)
stop_lists = st.lists(st.text(alphabet="ab😀", min_size=1, max_size=8), min_size=1, max_size=4)


@given(st.lists(st.text(alphabet="ab😀", max_size=4), max_size=20), stop_lists, st.booleans())
def test_any_pieces_give_the_same_text(pieces: list[str], stops: list[str], include: bool) -> None:
    checker = StopStrings(StopAutomaton(tuple(stops)), include)
    shown, matched = "", None
    for piece in pieces:
        text, matched = checker.feed(piece)
        shown += text
        if matched is not None:
            break
    else:
        shown += checker.flush()
    assert (shown, matched) == reference("".join(pieces), stops, include)


@given(small, stop_lists)
def test_what_was_shown_is_never_part_of_a_stop_string(text: str, stops: list[str]) -> None:
    checker = StopStrings(StopAutomaton(tuple(stops)), include=False)
    shown = ""
    for character in text:
        piece, matched = checker.feed(character)
        shown += piece
        assert reference(text, stops, False)[0].startswith(shown)
        if matched is not None:
            break


def test_holds_back_no_more_than_needed() -> None:
    checker = StopStrings(StopAutomaton(("###",)), include=False)
    assert checker.feed("ab") == ("ab", None)
    assert checker.feed("c#") == ("c", None)
    assert checker.feed("#d") == ("##d", None)
    assert checker.feed("##") == ("", None)
    assert checker.feed("#x") == ("", "###")


def lines_run(work: Callable[[], Any]) -> int:
    """How many lines of stop.py, and turns of its loops, `work` runs."""
    n = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal n
        n += event == "line"
        return trace if frame.f_code.co_filename == STOP_FILE else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return n


def hostile(n: int) -> list[tuple[str, ...]]:
    """Stop strings of n characters in all that an answer of nothing but the letter a almost completes."""
    each = n // MAX_STOPS
    different = tuple(chr(ord("b") + i) + "a" * (each - 1) for i in range(MAX_STOPS))
    alike = tuple("a" * (each - 1) + chr(ord("b") + i) for i in range(MAX_STOPS))
    return [("a" * (n - 1) + "b",), different, alike]


@pytest.mark.parametrize("kind", range(3))
@pytest.mark.parametrize("piece", ["a", "aaa", "aab"])
def test_work_is_linear_in_the_answer_and_in_the_stop_strings(kind: int, piece: str) -> None:
    """F10: whatever they are, and however the answer comes near them."""
    stops = hostile(MAX_STOP_CHARACTERS)[kind]
    made: list[StopAutomaton] = []
    assert lines_run(lambda: made.append(StopAutomaton(stops))) < 40 * MAX_STOP_CHARACTERS
    checker = StopStrings(made[0], include=False)
    n_pieces = 3000

    def answer() -> None:
        for _ in range(n_pieces):
            assert checker.feed(piece)[1] is None

    assert lines_run(answer) < n_pieces * (20 + 10 * len(piece))


ANSWER = "Sure. 漢字\n\nUser: more"


def bytes_of(model_dir: Path, text: str) -> list[int]:
    """The text's tokens, one per byte, so that characters and stop strings are cut at every byte."""
    ids = Tokenizer.from_file(str(model_dir / "tokenizer.json")).get_vocab()
    names = {byte: character for character, byte in byte_level_alphabet().items()}
    return [ids[names[byte]] for byte in text.encode()]


@pytest.mark.parametrize(
    ("stop", "include", "text", "matched"),
    [
        ("\n\nUser:", False, "Sure. 漢字", "\n\nUser:"),
        ("\n\nUser:", True, "Sure. 漢字\n\nUser:", "\n\nUser:"),
        (["ser", "User"], False, "Sure. 漢字\n\nU", "ser"),  # completed together: the first listed
        ("漢", False, "Sure. ", "漢"),
        ("字\n", True, "Sure. 漢字\n", "字\n"),
        (["nothing", "like it"], False, "Sure. 漢字\n\nUser: more", None),
    ],
)
def test_over_http(
    start_backend: StartBackend,
    start_frontend: StartFrontend,
    model_dir: Path,
    stop: str | list[str],
    include: bool,
    text: str,
    matched: str | None,
) -> None:
    backend = start_backend(script=say(bytes_of(model_dir, ANSWER)))
    frontend = start_frontend(backend)
    body = {"prompt": "x", "max_tokens": 100, "stop": stop, "include_stop_str_in_output": include}
    whole = frontend.client.post("/v1/completions", json=body).json()
    assert whole["choices"][0]["text"] == text
    assert whole["choices"][0]["stop_reason"] == matched
    assert whole["choices"][0]["finish_reason"] == "stop"
    chunks = events(frontend.client.post("/v1/completions", json={**body, "stream": True}))
    assert text_of(chunks) == text
    assert finish_reasons(chunks) == {0: "stop"}
    # Clients time tokens by chunks, of which a part of a character, or what is held back, shows nothing yet.
    assert len(chunks) == whole["usage"]["completion_tokens"]
    if matched is not None:  # counted up to the token that completed the stop string
        length = len(ANSWER[: ANSWER.index(matched) + len(matched)].encode())
        assert whole["usage"]["completion_tokens"] == length == len(chunks)  # an event each, held back or not


def test_min_tokens_come_before_stop_strings(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    frontend = start_frontend(start_backend())  # answers !"#$%&...
    body = {"prompt": "x", "max_tokens": 20, "stop": ["#", "&"], "min_tokens": 4}
    answer = frontend.client.post("/v1/completions", json=body).json()
    assert answer["choices"][0]["text"] == '!"#$%'
    assert answer["choices"][0]["stop_reason"] == "&"


def test_the_slot_is_cancelled_at_a_stop_string(
    start_backend: StartBackend, start_frontend: StartFrontend
) -> None:
    """F7."""
    backend = start_backend(step_s=0.05)
    frontend = start_frontend(backend)
    frontend.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 400, "stop": "$"})
    wait_until(lambda: backend.open_rows() == 0)
    assert [command.name for _, _, command in backend.commands] == ["SUBMIT", "CANCEL", "RELEASE"]
    assert backend.accepted[0].steps < 100
