"""Conversations with a real frontend, over a scheduler stand-in that remembers what it was asked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from harness import StartBackend, StartFrontend
from limits import PROGRAM_S
from mock_backend import MockBackend
from serve_process import ROOT
from tokenizers import Tokenizer

USERS, TURNS, SYSTEM, QUESTION, ANSWER = 3, 3, 16, 4, 6
FLAGS = (
    f"--conversations={USERS}",
    f"--turns={TURNS}",
    f"--system={SYSTEM}",
    f"--input={QUESTION}",
    f"--output={ANSWER}",
    "--tokens=10-400",
    "--warmup=0",
)


def hold(url: str, kind: str, tmp_path: Path) -> dict[str, Any]:
    """The point of the one window."""
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "blink", "bench", "serve", url, f"--json={path}", f"--prompts={kind}"]
    done = subprocess.run(
        [*command, *FLAGS], cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False
    )
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(path.read_text())["points"]
    assert point["failures"] == {}
    assert point["conversations"]["complete"] == USERS
    assert point["tokens_counted_by"] == "usage"
    assert point["tokens_per_chunk"] == 1
    return point


def answered(backend: MockBackend) -> list[tuple[list[int], list[int]]]:
    """Prompts and answers. The tokens of an answer count up from 4 with its prompt's length, which tells
    answers apart.
    """
    return [(row.prompt, list(range(4 + len(row.prompt) % 64, 4 + len(row.prompt) % 64 + ANSWER)))
            for row in backend.accepted]  # fmt: skip


def count_from_length(prompt: list[int]) -> Any:
    return iter(range(4 + len(prompt) % 64, 600))


def test_a_history_of_ids_is_what_the_scheduler_was_asked_and_answered(
    start_backend: StartBackend, start_frontend: StartFrontend, tmp_path: Path
) -> None:
    backend = start_backend(script=count_from_length)
    backend.cached_tokens = SYSTEM
    point = hold(start_frontend(backend).url, "ids", tmp_path)
    rows = answered(backend)
    assert len(rows) == USERS * TURNS
    lengths = [SYSTEM + QUESTION + turn * (QUESTION + ANSWER) for turn in range(TURNS)]
    assert sorted(len(prompt) for prompt, _ in rows) == sorted(lengths * USERS)
    for prompt, answer in rows:
        if len(prompt) < lengths[-1]:
            said = prompt + answer
            assert sum(other[: len(said)] == said for other, _ in rows if len(other) > len(said)) >= 1
    assert point["first_turns"]["prompt_tokens_mean"] == lengths[0]
    assert point["first_turns"]["cached_share"] == SYSTEM / lengths[0]
    assert point["later_turns"]["prompt_tokens_mean"] == sum(lengths[1:]) / (TURNS - 1)
    assert point["later_turns"]["cached_tokens_mean"] == SYSTEM


@pytest.mark.parametrize("kind", [pytest.param("text", marks=pytest.mark.slow), "chat"])
def test_a_history_of_text_goes_on_where_it_ended(
    start_backend: StartBackend, start_frontend: StartFrontend, model_dir: Path, kind: str, tmp_path: Path
) -> None:
    backend = start_backend(script=count_from_length)
    hold(start_frontend(backend).url, kind, tmp_path)
    tokenizer = Tokenizer.from_file(str(model_dir / "tokenizer.json"))
    rows = [
        (
            tokenizer.decode(prompt, skip_special_tokens=False),
            tokenizer.decode(answer, skip_special_tokens=False),
        )
        for prompt, answer in answered(backend)
    ]
    assert len(rows) == USERS * TURNS
    following = [sum(other.startswith(prompt + answer) for other, _ in rows) for prompt, answer in rows]
    assert sorted(following) == sorted(list(range(TURNS)) * USERS)  # as many as turns that came behind
    if kind == "chat":
        assert all(prompt.startswith("<|im_start|>system\n") for prompt, _ in rows)
