"""LLM on the demo model: the same answers as over HTTP, and a backend that never outlives its process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Frontend
from limits import START_S, WAIT_S
from mock_backend import MockBackend
from process_state import alive, children
from serving import DEMO, ROOT, items, serving
from waiting import wait_until

from blink import LLM, GenerationError, RequestOutput, SamplingParams, StructuredOutputsParams
from ringbuffer.region import ring_path

TASKS = ("count", "sort_numbers", "add", "reverse")
OPEN = 32  # requests over HTTP at a time


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[LLM, Frontend]]:
    """An LLM and an HTTP server on one backend."""
    name = f"test-python-{os.getpid()}"
    with serving(name, "--leases", "2", device="cpu"):
        path = ring_path(name)
        http = Frontend(cast(MockBackend, SimpleNamespace(path=path)), DEMO, max_connections=100)
        try:
            with LLM("demo", ring=name) as llm:
                yield llm, http
        finally:
            http.stop()


def over_http(http: Frontend, path: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def one(body: dict[str, Any]) -> dict[str, Any]:
        response = http.client.post(path, json=body)
        assert response.status_code == 200, response.text
        found: dict[str, Any] = response.json()
        return found

    with ThreadPoolExecutor(OPEN) as pool:
        return list(pool.map(one, bodies))


def texts(outputs: list[RequestOutput]) -> list[str]:
    return [output.outputs[0].text for output in outputs]


@pytest.mark.parametrize("n", [24, pytest.param(1000, marks=pytest.mark.slow)])
def test_texts_are_those_of_http(both: tuple[LLM, Frontend], n: int) -> None:
    llm, http = both
    prompts = [item.prompt for item in items(TASKS, n)]
    fields: list[dict[str, Any]] = [
        {"temperature": 0.0} if i % 2 else {"temperature": 0.9, "top_p": 0.95, "seed": i} for i in range(n)
    ]
    for one in fields:
        one["max_tokens"] = 48
    outputs = llm.generate(prompts, [SamplingParams(**one) for one in fields], use_tqdm=False)
    bodies = [{"prompt": prompt, **one} for prompt, one in zip(prompts, fields, strict=True)]
    expected = [answer["choices"][0]["text"] for answer in over_http(http, "/v1/completions", bodies)]
    assert texts(outputs) == expected
    assert len(set(expected)) > n / 2


def test_conversations_are_those_of_http(both: tuple[LLM, Frontend]) -> None:
    llm, http = both
    talks = [[{"role": "user", "content": f"Count from 1 to {i}."}] for i in range(2, 12)]
    outputs = llm.chat(talks, SamplingParams(temperature=0, max_tokens=64, logprobs=2), use_tqdm=False)
    fields = {"temperature": 0, "max_tokens": 64, "logprobs": True, "top_logprobs": 2}
    answers = over_http(http, "/v1/chat/completions", [{"messages": talk, **fields} for talk in talks])
    assert texts(outputs) == [answer["choices"][0]["message"]["content"] for answer in answers]
    for output, answer in zip(outputs, answers, strict=True):
        (choice,) = output.outputs
        told = answer["choices"][0]["logprobs"]["content"]
        own = [
            entry[token].logprob for entry, token in zip(choice.logprobs or (), choice.token_ids, strict=True)
        ]
        assert own == pytest.approx([entry["logprob"] for entry in told], abs=1e-4)


@pytest.mark.parametrize(
    ("structure", "allowed"),
    [
        ({"choice": ["red", "green"]}, ("red", "green")),
        ({"regex": "[ab]{3}"}, tuple(f"{a}{b}{c}" for a in "ab" for b in "ab" for c in "ab")),
        ({"json": {"enum": ["x", "y"]}}, ('"x"', '"y"')),
        ({"grammar": 'root ::= "yes" | "no"'}, ("yes", "no")),
    ],
)
def test_answers_keep_to_structures(
    both: tuple[LLM, Frontend], structure: dict[str, Any], allowed: tuple[str, ...]
) -> None:
    llm, _ = both
    params = SamplingParams(max_tokens=40, seed=3, structured_outputs=StructuredOutputsParams(**structure))
    for output in llm.generate(["one", "two", "three"], params, use_tqdm=False):
        assert output.outputs[0].text in allowed


# ---------------------------------------------------------------- a backend of its own

SCRIPT = """
import os, sys
from blink import LLM, SamplingParams
llm = LLM("demo", device="cpu", threads=1)
print(llm.generate("Count from 1 to 3.", SamplingParams(temperature=0), use_tqdm=False)[0].outputs[0].text)
print("ready", flush=True)
"""


def is_backend(pid: int) -> bool:
    return b"backend" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


@contextlib.contextmanager
def script(text: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A script without any guard of __main__, once it is ready, and the processes that it has started."""
    file = tmp_path / "script.py"
    file.write_text(SCRIPT + text)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, str(file)], cwd=tmp_path, env=environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        answered = process.stdout.readline()
        assert answered.startswith(" 1, 2, 3"), answered + process.communicate()[1]
        assert process.stdout.readline() == "ready\n"
        started = children(process.pid)
        assert started
        try:
            yield process, started
        finally:
            process.kill()
    wait_until(lambda: not any(alive(pid) for pid in started), START_S, "the backend ends")


@pytest.mark.parametrize(
    ("text", "status"),
    [("", 0), ("llm.close()", 0), ("raise SystemExit(3)", 3), ("1 / 0", 1), ("del llm", 0)],
)
@pytest.mark.slow
def test_no_end_of_the_interpreter_leaves_a_backend(text: str, status: int, tmp_path: Path) -> None:
    with script(text, tmp_path) as (process, _):
        assert process.wait(WAIT_S) == status


def test_ctrl_c_ends_the_script_and_its_backend(tmp_path: Path) -> None:
    """While many prompts are open."""
    asks = "llm.generate(['x'] * 5000, SamplingParams(max_tokens=500, ignore_eos=True), use_tqdm=False)"
    with script(asks, tmp_path) as (process, _):
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
        assert errors.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.slow
def test_a_killed_process_leaves_no_backend(tmp_path: Path) -> None:
    """Nor one that has forked: the child has no part in the backend."""
    forks = """
forked = os.fork()
if forked == 0:
    import time; time.sleep(600)
print(forked, flush=True)
llm.generate("x")
sys.stdin.read()
"""
    with script(forks, tmp_path) as (process, started):
        assert process.stdout is not None
        forked = int(process.stdout.readline())
        (backend,) = [pid for pid in started if is_backend(pid)]
        process.kill()
        wait_until(lambda: not alive(backend), WAIT_S, "the backend ends")
        os.kill(forked, signal.SIGKILL)


@pytest.mark.slow
def test_a_forked_process_is_told_to_make_its_own(tmp_path: Path) -> None:
    forks = """
pid = os.fork()
if pid == 0:
    try:
        llm.generate("x")
    except RuntimeError as error:
        sys.exit(7 if "parent process" in str(error) else 8)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
print(llm.generate("Count from 1 to 3.", SamplingParams(temperature=0), use_tqdm=False)[0].outputs[0].text)
"""
    with script(forks, tmp_path) as (process, _):
        assert process.wait(WAIT_S) == 0


@pytest.mark.slow
def test_a_backend_that_dies_is_told(tmp_path: Path) -> None:
    """With what was answered before. Nothing waits for what cannot come."""
    asks = """
from blink import GenerationError
try:
    llm.generate([[5] * 9999] * 3, SamplingParams(max_tokens=5, ignore_eos=True, n=2), use_tqdm=False)
except GenerationError as error:
    print(error, flush=True)
class Bar:
    format_dict = {"elapsed": 1.0}
    def update(self, n):
        print("one is answered", flush=True)
    def close(self):
        pass
endless = [SamplingParams(max_tokens=5)] + [SamplingParams(max_tokens=2000, ignore_eos=True)] * 2000
try:
    llm.generate(["x"] * 2001, endless, use_tqdm=lambda **of: Bar())
except GenerationError as error:
    print(error.outputs[0].finished, len(error.errors), error, flush=True)
try:
    llm.generate("x")
except RuntimeError as error:
    print(error, flush=True)
"""
    with script(asks, tmp_path) as (process, started):
        assert process.stdout is not None
        assert "maximum context length is 2048 tokens" in process.stdout.readline()
        assert process.stdout.readline() == "one is answered\n"
        for pid in filter(is_backend, started):
            os.kill(pid, signal.SIGKILL)
        told, _ = process.communicate(timeout=WAIT_S)
        lines = [line for line in told.splitlines() if line != "one is answered"]
        assert lines[0].startswith("True 2000 prompt 1: the backend was killed by SIGKILL")
        assert lines[1] == "the backend was killed by SIGKILL"


def test_what_does_not_start_is_told_and_leaves_nothing() -> None:
    before = set(children(os.getpid()))
    with pytest.raises(RuntimeError, match="the backend ended with exit status 1"):
        LLM("demo", device="cpu", max_context=1)
    with pytest.raises(RuntimeError, match=r"not ready after 0\.01 s: raise start_timeout"):
        LLM("demo", device="cpu", start_timeout=0.01)
    with pytest.raises(RuntimeError, match="no directory no-such-model"):
        LLM("no-such-model")
    wait_until(lambda: set(children(os.getpid())) <= before, WAIT_S, "the backends end")


def test_a_ring_without_a_lease_is_told(both: tuple[LLM, Frontend]) -> None:
    llm, _ = both
    ring = llm._engine._options.ring
    assert isinstance(ring, Path)
    with pytest.raises(RuntimeError, match="lease"):
        LLM("demo", ring=ring)


@pytest.mark.slow
def test_logits_processors_are_functions_that_the_backend_has_compiled() -> None:
    with LLM("demo", logits_processor="blink.example_processors:no_repeat", slots=16) as llm:
        params = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
        banned = SamplingParams(
            temperature=0, max_tokens=24, ignore_eos=True, logits_processors=["no_repeat"]
        )
        plain, without_repeats = llm.generate(["Count from 1 to 9."] * 2, [params, banned], use_tqdm=False)
        tokens = without_repeats.outputs[0].token_ids
        assert len(set(tokens)) == len(tokens) == 24
        assert len(set(plain.outputs[0].token_ids)) < 24
        with pytest.raises(GenerationError, match="no_repeat"):
            llm.generate("x", SamplingParams(logits_processors=["other"]), use_tqdm=False)
