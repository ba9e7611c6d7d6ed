"""`blink bench serve --agents`: what is planned, what is asked, the score, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import bad_server
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import PROGRAM_S
from serve_process import ROOT, ServeProcess
from talking_server import TalkingServer, said, units

from blink.bench.agents import (
    ANSWERS,
    CONTEXT,
    NEW_TOKENS,
    PREFIX,
    SESSION_TURNS,
    TOOLS_AND_USERS,
    Agents,
    Session,
    agents,
    least_context,
)
from blink.bench.records import Outcome
from blink.bench.sessions import measure_sessions, score

MS = 1_000_000
SYSTEM, CONTEXT_TOKENS = 32, 400
SHORT = (
    f"--system={SYSTEM}",
    "--input=8:0.8:4-16",
    "--output=5:0.8:2-8",
    "--session-turns=6:0.8:2-12",
    f"--context={CONTEXT_TOKENS}",
    "--think=0.04",
    "--duration=4",  # in which many sessions end, also where everything stands still for a while
    "--drop=0",
    "--warmup=0",
    "--pause=0",
)


def plan(lanes: int = 4, seed: int = 1, context: int = CONTEXT, system_tokens: int = PREFIX) -> Agents:
    return agents(
        lanes,
        seed,
        NEW_TOKENS,
        ANSWERS,
        SESSION_TURNS,
        kind="ids",
        system_tokens=system_tokens,
        context=context,
    )


def of_requests(made: Agents, field: str) -> Any:
    return np.concatenate([getattr(session, field) for session in made.plans])


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(1024, 16384), st.integers(0, 60_000))
def test_every_session_is_within_its_bounds(seed: int, lanes: int, system: int, spare: int) -> None:
    context = least_context(NEW_TOKENS, ANSWERS, system) + spare
    made = plan(lanes, seed, context, system)
    for session in made.plans:
        assert 1 <= session.turns <= SESSION_TURNS.high
        assert len(session.new) == len(session.answers) == session.widths.sum()
        assert session.widths.min() >= 1
        assert session.contexts(system).max() <= context
        assert session.waits_s[0] == 0
        assert session.waits_s.max() <= TOOLS_AND_USERS.cap_s
    for field, bounds in (("new", NEW_TOKENS), ("answers", ANSWERS)):
        tokens = of_requests(made, field)
        assert bounds.low <= tokens.min()
        assert tokens.max() <= bounds.high
    turns = np.array([made.plan(lane).turns for lane in range(lanes)])
    assert (made.first_turns < turns).all()
    assert (made.first_turns <= 0.75 * turns).all()


@settings(max_examples=10)
@given(st.integers(0, 2**32), st.integers(1, 64))
def test_a_seed_decides_the_plan_and_lanes_do_not_change_its_sessions(seed: int, lanes: int) -> None:
    made, again, one = plan(lanes, seed), plan(lanes, seed), plan(1, seed)
    assert made.digest() == again.digest()
    assert made.digest() != plan(lanes, seed + 1).digest()
    for session, same in zip(made.plans, one.plans, strict=True):
        assert session.new.tolist() == same.new.tolist()
        assert session.waits_s.tolist() == same.waits_s.tolist()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_statistics_are_those_that_were_published(seed: int) -> None:
    made = plan(seed=seed, context=10**6)  # no session is cut short
    new, answers, widths = (of_requests(made, field) for field in ("new", "answers", "widths"))
    assert 684 < np.median(new) < 954
    assert new.mean() < 1204
    assert answers.mean() == pytest.approx((182 + 523) / 2, rel=0.05)
    assert widths.mean() == pytest.approx(1.2, abs=0.03)
    assert [np.percentile(widths, p) for p in (50, 90, 99)] == [1, 2, 4]
    turns = [session.turns for session in made.plans]
    assert np.percentile(turns, [25, 50, 90]) == pytest.approx([4, 15, 135], rel=0.5)
    waits_s = np.concatenate([session.waits_s[1:] for session in made.plans])
    uncut = dataclasses.replace(TOOLS_AND_USERS, cap_s=1e9, tool_share=1.0)
    tools_s = uncut.sample((100_000,), np.random.default_rng(seed))
    assert np.percentile(tools_s, [50, 90]) == pytest.approx([0.3, 13.6], rel=0.1)
    users_s = dataclasses.replace(uncut, tool_share=0.0).sample((100_000,), np.random.default_rng(seed))
    assert np.percentile(users_s, [50, 90]) == pytest.approx([84, 1236], rel=0.1)
    assert waits_s.mean() == pytest.approx(2.9, rel=0.1)


def test_contexts_grow_to_tens_of_thousands_and_end_the_longer_sessions() -> None:
    made, whole = plan(), plan(context=10**6)
    assert made.summary()["context_tokens"]["max"] > 0.95 * CONTEXT
    shorter = [cut.turns < session.turns for cut, session in zip(made.plans, whole.plans, strict=True)]
    assert 0.25 < np.mean(shorter) < 0.75
    for cut, session in zip(made.plans, whole.plans, strict=True):
        if cut.turns < session.turns:
            assert session.contexts(PREFIX)[cut.turns] > CONTEXT


def test_a_history_has_the_first_question_and_all_answers_of_a_turn() -> None:
    session = Session(
        np.array([1, 3, 1]), np.zeros(3), np.array([10, 20, 21, 22, 30]), np.array([1, 2, 3, 4, 5])
    )
    assert session.said().tolist() == [0, 11, 11 + 20 + 9, 40 + 35]
    assert session.contexts(100).tolist() == [111, 100 + 11 + 26, 100 + 40 + 35]
    assert session.within(150, 100).turns == 2
    assert session.within(150, 100).new.tolist() == [10, 20, 21, 22]


def outcome(
    index: int, turn: int, e2e_ms: float, tokens: int, sent_ms: float = 0, error: str | None = None
) -> Outcome:
    sent = int(sent_ms * MS)
    stamps = np.array([sent + int(e2e_ms * MS / 2), sent + int(e2e_ms * MS)], dtype=np.int64)
    return Outcome(index, None, sent, sent, tokens, stamps, tokens, True, error, turn, 100, 80)


def test_the_score_is_the_inverse_of_the_p90_of_latency_a_token() -> None:
    good = [outcome(0, 0, e2e_ms=10.0 * n, tokens=10) for n in range(1, 12)]  # 1 to 11 ms a token
    assert score(good)["e2e_per_token_p90_ms"] == pytest.approx(10)
    assert score(good)["score_tokens_per_s"] == pytest.approx(100)
    assert score([outcome(0, 0, 500, 4)])["score_tokens_per_s"] == pytest.approx(8)  # TTFT included
    assert score([])["score_tokens_per_s"] is None


def test_turns_and_sessions_count_once_all_of_their_requests_are_answered() -> None:
    session = Session(np.array([1, 2]), np.zeros(2), np.array([8, 8, 8]), np.array([4, 4, 4]))
    made = Agents(2, "ids", (session,), np.zeros(2, dtype=np.int64), np.zeros(2), 16, 99)
    stride = made.stride
    whole = [outcome(0, 0, 10, 4), outcome(1, 1, 20, 4), outcome(2, 1, 30, 4)]
    half = [outcome(stride, 0, 10, 4), outcome(stride + 1, 1, 10, 4)]
    half.append(outcome(stride + 2, 1, 10, 4, error="lost"))
    found = measure_sessions([*whole, *half], made, (0, 1000 * MS))["agents"]
    assert found["turns_complete"] == 3
    assert found["turns_of_several_requests"] == 1
    assert (found["sessions_complete"], found["sessions_broken"]) == (1, 1)
    assert found["cached_share"] == 0.8
    early = measure_sessions(whole, made, (0, 25 * MS))["agents"]  # the last turn ends after it
    assert (early["turns_complete"], early["sessions_complete"]) == (1, 0)


def bench(url: str, tmp_path: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The finished process and what --json wrote."""
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "blink", "bench", "serve", url, f"--json={path}", *SHORT, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    return done, json.loads(path.read_text()) if path.exists() else {}


def told(body: dict[str, Any], answer: list[int]) -> list[Any]:
    """An answer as a later prompt has it."""
    return answer if body.get("return_token_ids") else [said(token).strip() for token in answer]


def stands_in(part: list[Any], prompt: list[Any]) -> bool:
    return any(prompt[i : i + len(part)] == part for i in range(len(prompt) - len(part) + 1))


@pytest.mark.parametrize(
    "kind", ["ids", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("text", "chat"))]
)
def test_a_turn_begins_when_all_requests_of_the_one_before_are_answered(kind: str, tmp_path: Path) -> None:
    with TalkingServer() as server:
        done, result = bench(server.url, tmp_path, "--agents=3", f"--prompts={kind}", "--clients=2")
    assert done.returncode == 0, done.stderr
    (point,) = result["points"]
    assert point["failures"] == {}
    figures = point["agents"]
    assert figures["sessions_complete"] > 3
    assert figures["sessions_broken"] == 0
    assert figures["turns_of_several_requests"] > 0
    assert point["requests_complete"] > figures["turns_complete"] > figures["sessions_complete"]
    assert figures["score_tokens_per_s"] == pytest.approx(1e3 / figures["e2e_per_token_p90_ms"])
    prompts = [units(body) for body in server.bodies]
    assert len({tuple(prompt[:SYSTEM]) for prompt in prompts}) == 1
    assert len(set(map(tuple, prompts))) == len(prompts)
    results = 0
    for number, answer in server.answers.items():
        answered = told(server.bodies[number], answer)
        later = [prompt for prompt in prompts if stands_in(answered, prompt)]
        before = prompts[number] + answered
        goes_on = [prompt for prompt in later if prompt[: len(before)] == before]
        assert goes_on in ([], later)  # an answer stands behind its own prompt, or is another's result
        results += bool(later) and not goes_on
    assert results >= figures["turns_of_several_requests"] // 2  # a session's last turn has no next prompt
    if kind == "ids":
        longest = max(
            len(prompt) + body["max_tokens"] for prompt, body in zip(prompts, server.bodies, strict=True)
        )
        assert longest <= CONTEXT_TOKENS
    assert "score tok/s" in done.stdout
    assert "3 lanes" in done.stdout


def test_a_failure_ends_its_session_and_the_lane_begins_another(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> bad_server.Behaviour | None:
        return bad_server.failing if number == 2 else None

    with TalkingServer(fault) as server:
        done, result = bench(server.url, tmp_path, "--agents=1")
    assert done.returncode == 0, done.stderr
    (point,) = result["points"]
    assert point["failures"] == {"error in the stream: the engine died": 1}
    assert point["agents"]["sessions_broken"] == 1
    assert point["agents"]["sessions_complete"] > 1


@pytest.mark.slow
def test_a_turn_of_which_an_answer_stalls_is_a_failure_and_the_run_ends(tmp_path: Path) -> None:
    def fault(body: dict[str, Any], number: int) -> bad_server.Behaviour | None:
        return bad_server.stalled if number == 9 else None

    with TalkingServer(fault) as server:
        done, result = bench(server.url, tmp_path, "--agents=2", "--drain=10")
    assert done.returncode == 0, done.stderr
    (point,) = result["points"]
    assert point["failures"] == {"not finished in time": 1}
    assert point["agents"]["sessions_broken"] == 1
    assert point["agents"]["sessions_complete"] > 0  # of the other lane


def test_a_server_that_tells_no_token_ids_is_told_so(tmp_path: Path) -> None:
    with TalkingServer(tells=False) as server:
        done, _ = bench(server.url, tmp_path, "--agents=2", "--warmup=2")
    assert done.returncode == 1
    assert "use --prompts text or chat" in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--agents=1", "--rate=1"), "give one of --rate, --concurrency, --conversations and --agents"),
        (("--agents=1", "--turns=3"), "only with --conversations: --turns"),
        (("--agents=1", "--context=40"), "--context: 40 tokens hold no turn: --system 32, --input of up to "
         "16 and --output of up to 8 need 56"),
        (("--agents=1", "--context=200000"), "--context: 200000 tokens; prompts of up to 131071"),
        (("--agents=1", "--session-turns=9999"), "sessions of up to 4096 turns can be planned"),
        (("--conversations=1",), "only with --agents: --session-turns, --context"),
    ],
)  # fmt: skip
def test_flags_that_make_no_sense_are_refused(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done, _ = bench("http://127.0.0.1:9", tmp_path, *flags)
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.alone
@pytest.mark.slow
def test_agents_against_blink_serve(tmp_path: Path) -> None:
    server = ServeProcess("--max-context=512").wait_ready()
    try:
        done, result = bench(server.url, tmp_path, "--agents=2,3", "--duration=5", "--drain=30")
        assert done.returncode == 0, done.stderr
        for point, lanes in zip(result["points"], (2, 3), strict=True):
            assert point["concurrency"] == lanes
            assert point["failures"] == {}
            assert point["agents"]["sessions_complete"] > 0
            assert 0.3 < point["agents"]["cached_share"] < 1
            assert point["agents"]["longest_prompt"] <= CONTEXT_TOKENS
            assert point["agents"]["score_tokens_per_s"] > 0
        first, second = (result["traces"][f"{lanes} lanes"] for lanes in (2, 3))
        assert first["requests"] == second["requests"]
        done, _ = bench(server.url, tmp_path, "--agents=1", "--context=2000", "--model=demo")
        assert done.returncode == 1
        assert "sessions grow to --context 2000 tokens, and the server's contexts have 512" in done.stderr
        assert "give --context 512 for every server that is compared" in done.stderr
    finally:
        server.close()


def test_lengths_have_defaults_of_their_own() -> None:
    command = [sys.executable, "-m", "blink", "bench", "serve", "http://127.0.0.1:9", "--agents=1"]
    command.append("--context=10000")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    assert f"--system {PREFIX}, --input of up to {NEW_TOKENS.high}" in done.stderr
    assert f"need {PREFIX + NEW_TOKENS.high + ANSWERS.high}" in done.stderr
