"""`blink bench serve --conversations` as a user runs it: what is asked, what came of it, what fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bad_server
import numpy as np
import pytest
from limits import PROGRAM_S
from serve_process import ROOT
from talking_server import TalkingServer, said, units

from blink.bench.conversations import Think, conversations, think
from blink.bench.trace import Lengths

SYSTEM, QUESTION, ANSWER, TURNS = 32, 8, 6, 4
SHORT = (
    f"--system={SYSTEM}",
    f"--input={QUESTION}",
    f"--output={ANSWER}",
    f"--turns={TURNS}",
    "--warmup=0",
    "--pause=0",
)


def bench(url: str, tmp_path: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The finished process and what --json wrote."""
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "blink", "bench", "serve", url, f"--json={path}", *SHORT, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    return done, json.loads(path.read_text()) if path.exists() else {}


def follow(server: TalkingServer) -> dict[int, int]:
    """For each request the one that goes on with its conversation: its prompt, its answer, a question."""
    prompts = [units(body) for body in server.bodies]
    found = {}
    for i, answer in server.answers.items():
        ids = server.bodies[i].get("return_token_ids")
        so_far = prompts[i] + (answer if ids else [said(token).strip() for token in answer])
        for j, prompt in enumerate(prompts):
            if prompt[: len(so_far)] == so_far:
                assert len(prompt) >= len(so_far) + QUESTION
                if len(prompt) == len(so_far) + QUESTION:
                    found[i] = j
    return found


@pytest.mark.parametrize(
    "kind", ["ids", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("text", "chat"))]
)
def test_each_question_stands_behind_all_that_was_said(kind: str, tmp_path: Path) -> None:
    with TalkingServer() as server:
        flags = ("--conversations=3", "--each=2", f"--prompts={kind}", "--clients=2")
        done, result = bench(server.url, tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    assert len(server.bodies) == 3 * 2 * TURNS
    following = follow(server)
    assert len(following) == 3 * 2 * (TURNS - 1)
    assert len(set(following.values())) == len(following)
    prompts = [units(body) for body in server.bodies]
    assert len({tuple(prompt[:SYSTEM]) for prompt in prompts}) == 1
    assert len({tuple(prompt[-QUESTION:]) for prompt in prompts}) == len(prompts)
    first = [prompt for i, prompt in enumerate(prompts) if i not in following.values()]
    assert [len(prompt) for prompt in first] == [SYSTEM + QUESTION] * 6
    (point,) = result["points"]
    assert point["requests_complete"] == point["requests_sent"] == len(prompts)
    assert point["conversations"] == {"planned": 6, "complete": 6, "broken": 0, "turns_not_asked": 0}
    assert result["traces"]["3 users"]["requests"] == len(prompts)


def test_messages_alternate_behind_the_system_prompt(tmp_path: Path) -> None:
    with TalkingServer() as server:
        bench(server.url, tmp_path, "--conversations=1", "--prompts=chat")
    assert set(server.paths) == {"/v1/chat/completions"}
    for turn, body in enumerate(server.bodies):
        roles = [message["role"] for message in body["messages"]]
        assert roles == ["system", *["user", "assistant"] * turn, "user"]
        assert (body["stream"], body["ignore_eos"], body["max_tokens"]) == (True, True, ANSWER)


@pytest.mark.slow
def test_no_window_begins_as_another_one_did(tmp_path: Path) -> None:
    with TalkingServer() as server:
        bench(server.url, tmp_path, "--conversations=2,2", "--each=1,2", "--warmup=1")
    assert len(server.bodies) == 2 + (2 + 4) * TURNS
    assert len({tuple(body["prompt"][:4]) for body in server.bodies}) == 3  # the warm-up's, and the windows'


@pytest.mark.slow
def test_system_prompts_are_dealt_out_in_turn(tmp_path: Path) -> None:
    with TalkingServer() as server:
        bench(server.url, tmp_path, "--conversations=4", "--system-prompts=2")
    systems = [tuple(body["prompt"][:SYSTEM]) for body in server.bodies]
    assert sorted(systems.count(system) for system in set(systems)) == [2 * TURNS, 2 * TURNS]


@pytest.mark.slow
def test_without_a_system_prompt_a_conversation_begins_with_its_question(tmp_path: Path) -> None:
    with TalkingServer() as server:
        bench(server.url, tmp_path, "--conversations=1", "--system=0")
    assert [len(body["prompt"]) for body in server.bodies[:2]] == [QUESTION, 2 * QUESTION + ANSWER]


def test_what_was_cached_is_told_of_first_and_later_turns(tmp_path: Path) -> None:
    with TalkingServer() as server:
        done, result = bench(server.url, tmp_path, "--conversations=1", "--each=2")
    (point,) = result["points"]
    first, later = point["first_turns"], point["later_turns"]
    assert (first["requests_complete"], later["requests_complete"]) == (2, 2 * (TURNS - 1))
    assert first["prompt_tokens_mean"] == SYSTEM + QUESTION
    assert first["cached_tokens_mean"] == SYSTEM / 2  # nothing in the first conversation
    longer = [SYSTEM + QUESTION + turn * (QUESTION + ANSWER) for turn in range(1, TURNS)]
    assert later["prompt_tokens_mean"] == np.mean(longer)
    before = [length - QUESTION - ANSWER for length in longer]
    assert later["cached_share"] == pytest.approx(sum(n // 16 * 16 for n in before) / sum(longer))
    assert later["ttft_ms"]["p50"] > 0
    assert "TTFT later p99" in done.stdout
    assert f"{later['cached_share']:.0%}" in done.stdout


@pytest.mark.slow
def test_a_server_that_tells_less_is_measured_all_the_same(tmp_path: Path) -> None:
    with TalkingServer(tells=False) as server:
        done, result = bench(server.url, tmp_path, "--conversations=1", "--prompts=chat")
    assert done.returncode == 0, done.stderr
    (point,) = result["points"]
    assert point["later_turns"]["cached_tokens_mean"] is point["later_turns"]["cached_share"] is None
    assert point["tokens_per_chunk"] == 1  # the chunk with the role is none of a token


@pytest.mark.slow
def test_token_ids_that_do_not_come_are_told_before_anything_is_measured(tmp_path: Path) -> None:
    with TalkingServer(tells=False) as server:
        done, result = bench(server.url, tmp_path, "--conversations=1", "--warmup=1")
    assert done.returncode == 1
    assert "the server returns no token ids (return_token_ids)" in done.stderr
    assert "use --prompts text or chat" in done.stderr
    assert result == {}
    assert len(server.bodies) == 1


def test_one_turn_each_is_a_burst_for_any_server(tmp_path: Path) -> None:
    with TalkingServer(tells=False) as server:
        flags = ("--conversations=5", "--turns=1", "--system=0")
        done, result = bench(server.url, tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    assert [len(body["prompt"]) for body in server.bodies] == [QUESTION] * 5
    assert not any("return_token_ids" in body for body in server.bodies)
    (point,) = result["points"]
    assert point["first_turns"]["ttft_ms"] == point["ttft_ms"]
    assert point["later_turns"]["ttft_ms"] is None


def test_a_failure_ends_its_conversation_and_no_other(tmp_path: Path) -> None:
    length = SYSTEM + QUESTION + 2 * (QUESTION + ANSWER)  # of a third turn's prompt
    broken: list[int] = []

    def fault(body: dict[str, Any], number: int) -> bad_server.Behaviour | None:
        if len(body["prompt"]) != length or broken:
            return None
        broken.append(number)
        return bad_server.failing

    with TalkingServer(fault) as server:
        done, result = bench(server.url, tmp_path, "--conversations=3", "--each=2")
    assert done.returncode == 0, done.stderr
    (point,) = result["points"]
    assert point["failures"] == {"error in the stream: the engine died": 1}
    assert point["conversations"] == {"planned": 6, "complete": 5, "broken": 1, "turns_not_asked": 1}
    assert point["requests_complete"] == len(server.bodies) - 1 == 6 * TURNS - 2
    asked = server.bodies[broken[0]]["prompt"]
    assert [body["prompt"] for body in server.bodies if body["prompt"][:length] == asked] == [asked]
    assert "1 turns were not asked: 1 conversations ended by a failure" in done.stdout


@pytest.mark.slow
def test_when_the_time_is_over_no_turn_begins(tmp_path: Path) -> None:
    with TalkingServer() as server:
        done, result = bench(server.url, tmp_path, "--conversations=2", "--think=60", "--duration=5")
    assert done.returncode == 0, done.stderr
    assert len(server.bodies) == 2
    (point,) = result["points"]
    assert point["conversations"] == {
        "planned": 2,
        "complete": 0,
        "broken": 0,
        "turns_not_asked": 2 * (TURNS - 1),
    }
    assert "6 turns were not asked: --duration was over" in done.stdout


@pytest.mark.slow
def test_an_answer_that_stalls_is_a_failure_and_the_run_ends(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> bad_server.Behaviour | None:
        return bad_server.stalled if number == 0 else None

    with TalkingServer(fault) as server:
        _, result = bench(server.url, tmp_path, "--conversations=2", "--duration=6", "--drain=4")
    (point,) = result["points"]
    assert point["failures"] == {"not finished in time": 1}
    assert point["conversations"]["complete"] == 1


@pytest.mark.slow
def test_users_think_and_begin_one_after_the_other(tmp_path: Path) -> None:
    with TalkingServer() as server:
        bench(server.url, tmp_path, "--conversations=2", "--turns=2", "--think=0.2", "--stagger=10")
    first = [i for i, body in enumerate(server.bodies) if len(body["prompt"]) == SYSTEM + QUESTION]
    # Five seconds apart, and the first may come late.
    assert server.times[first[1]] - server.times[first[0]] > 3
    for before, after in follow(server).items():
        assert server.times[after] - server.times[before] > 0.2


@pytest.mark.slow
def test_answers_may_end_early_where_the_server_knows_no_ignore_eos(tmp_path: Path) -> None:
    with TalkingServer(lambda body, number: bad_server.short) as server:
        flags = ("--conversations=1", "--prompts=text", "--respect-eos")
        done, result = bench(server.url, tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    assert all("ignore_eos" not in body for body in server.bodies)
    assert result["points"][0]["requests_failed"] == 0
    assert len(server.bodies) == TURNS


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--rate=1", "--conversations=1"),
            "give one of --rate, --concurrency, --conversations",
        ),
        (("--conversations=1,2", "--each=1,2,3"), "--each is one number, or as many as --conversations has"),
        (("--conversations=1", "--think=soon"), "'soon' is no time to think"),
        (("--conversations=1", "--system=200000"), "--system: 200000 tokens; prompts of up to 131071"),
        (("--conversations=1", "--input=200000"), "--input: 200000 tokens; prompts of up to 131071"),
        (
            ("--rate=1",),
            "--conversations: --turns; only with --conversations or --agents: --system",
        ),
    ],
)
def test_flags_that_do_not_go_together(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done, result = bench("http://127.0.0.1:1", tmp_path, *flags)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert result == {}


FIXED = Lengths(8, 0.0, 8, 8)


def test_a_seed_decides_the_conversations() -> None:
    def digest(seed: int, thinking: Think) -> str:
        lengths = Lengths(100, 0.5, 10, 400)
        made = conversations(4, 2, 5, seed, lengths, FIXED, kind="ids", system_tokens=9, think=thinking)
        return made.digest()

    assert digest(1, think("exp:2")) == digest(1, think("exp:2"))
    assert len({digest(1, think("exp:2")), digest(2, think("exp:2")), digest(1, think("2"))}) == 3


def test_times_to_think_are_before_later_turns_alone() -> None:
    made = conversations(
        50, 4, 11, 1, FIXED, FIXED, kind="ids", system_tokens=0, think=think("exp:2"), stagger_s=5.0
    )
    assert not made.think_s[:, 0].any()
    later = made.think_s[:, 1:]
    assert later.mean() == pytest.approx(2.0, rel=0.1)
    assert later.std() == pytest.approx(2.0, rel=0.1)  # of an exponential
    assert made.starts_s.tolist() == pytest.approx([i * 0.1 for i in range(50)])
    assert list(made.of_user(3)) == [3, 53, 103, 153]
    assert str(think(str(Think(2.0, True)))) == "exp:2"
