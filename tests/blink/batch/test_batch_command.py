"""blink batch on a mock backend: answers as over HTTP, bad lines among good, stopped and gone on with."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixtures import *  # noqa: F403
from harness import COMPLETION, StartBackend, StartFrontend
from limits import WAIT_S
from mock_backend import MockBackend
from waiting import wait_until

from blink import cli
from blink.batch import run
from blink.batch.lines import Line
from blink.batch.post import Response
from blink.batch.run import Room

Lines = Callable[..., Path]


@pytest.fixture
def requests(tmp_path: Path) -> Lines:
    """A function that writes lines: bodies of completions by default, else lines as they are."""

    def write(*lines: dict[str, Any] | str) -> Path:
        path = tmp_path / "in.jsonl"
        path.write_text("".join(one if isinstance(one, str) else f"{json.dumps(one)}\n" for one in lines))
        return path

    return write


def completion(name: str, **fields: Any) -> dict[str, Any]:
    body = {**COMPLETION, **fields}
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": body}


def batch(backend: MockBackend, model_dir: Path, path: Path, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    """The exit status, and the lines of the answers."""
    out = path.with_name("out.jsonl")
    attach = [f"--ring={backend.path}", f"--attach-timeout={WAIT_S:g}", *flags]
    status = cli.main(["batch", str(model_dir), str(path), str(out), *attach])
    return status, [json.loads(line) for line in out.read_text().splitlines()]


def test_answers_are_those_of_http(
    start_backend: StartBackend, start_frontend: StartFrontend, model_dir: Path, requests: Lines
) -> None:
    backend = start_backend(n_leases=2)
    chat = {
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 3,
        "logprobs": True,
        "top_logprobs": 1,
    }
    asked = {
        "a": ("/v1/completions", {"prompt": ["x", "y"], "max_tokens": 4, "n": 2, "echo": True}),
        "b": ("/v1/chat/completions", chat),
        "c": ("/v1/responses", {"input": "hello", "max_output_tokens": 3}),
        "d": ("/v1/completions", {"prompt": "x", "temperature": 9}),
        "e": ("/v1/chat/completions", {"messages": []}),
    }
    lines = [
        {"custom_id": name, "method": "POST", "url": url, "body": body} for name, (url, body) in asked.items()
    ]
    status, answers = batch(backend, model_dir, requests(*lines))
    assert status == 1  # two were refused
    assert {answer["custom_id"] for answer in answers} == set(asked)
    client = start_frontend(backend).client
    for answer in answers:
        url, body = asked[answer["custom_id"]]
        response = client.post(url, json=body)
        assert answer["error"] is None
        assert answer["response"]["status_code"] == response.status_code
        assert answer["response"]["request_id"]
        assert alike(answer["response"]["body"]) == alike(response.json())


def alike(body: Any) -> Any:
    """Without what differs from run to run."""
    if isinstance(body, dict):
        return {name: alike(value) for name, value in body.items() if name not in VARY}
    return [alike(one) for one in body] if isinstance(body, list) else body


VARY = ("id", "created", "created_at", "completed_at", "msg")


def test_bad_lines_hurt_no_others(start_backend: StartBackend, model_dir: Path, requests: Lines) -> None:
    path = requests(completion("a"), "nonsense\n", completion("b", stream=True), completion("c"))
    status, answers = batch(start_backend(), model_dir, path)
    assert status == 1
    by_line = {answer["id"]: answer for answer in answers}
    assert sorted(by_line) == [f"batch_req_{n}" for n in (1, 2, 3, 4)]
    assert [by_line[f"batch_req_{n}"]["custom_id"] for n in (1, 2, 3, 4)] == ["a", None, "b", "c"]
    assert by_line["batch_req_2"]["response"] is None
    assert by_line["batch_req_2"]["error"]["code"] == "invalid_line"
    assert "line 2: " in by_line["batch_req_2"]["error"]["message"]
    assert by_line["batch_req_4"]["response"]["status_code"] == 200


def test_what_is_answered_is_not_asked_again(
    start_backend: StartBackend, model_dir: Path, requests: Lines
) -> None:
    path = requests(*(completion(f"r{i}") for i in range(20)), "nonsense\n")
    first = start_backend()
    assert batch(first, model_dir, path)[0] == 1
    out = path.with_name("out.jsonl")
    whole = out.read_bytes()
    kept = [line for line in whole.splitlines(keepends=True) if b'"r1' not in line]
    out.write_bytes(b"".join(kept) + whole.splitlines()[0][:50])  # it was killed while it wrote
    second = start_backend()
    status, answers = batch(second, model_dir, path)
    assert status == 1  # of the line that was answered before
    assert len(second.accepted) == 11  # r1, r10 to r19
    assert sorted(answer["custom_id"] or "" for answer in answers) == sorted(
        [f"r{i}" for i in range(20)] + [""]
    )
    third = start_backend()
    assert batch(third, model_dir, path) == (1, answers)
    assert third.accepted == []


def test_names_and_answers_may_have_lone_surrogates(
    start_backend: StartBackend, model_dir: Path, requests: Lines
) -> None:
    """As clients send them, who cut texts in the middle of a character."""
    chat = {"messages": [{"role": "user", "content": "\ud83d"}]}
    lines = [
        completion("\ud83d"),
        {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": chat},
        {"custom_id": "\ud83d\ud83d", "method": "\ud83d", "url": "", "body": {}},
    ]
    status, answers = batch(start_backend(), model_dir, requests(*lines))
    assert status == 1
    assert {answer["custom_id"] for answer in answers} == {"\ud83d", "b", "\ud83d\ud83d"}
    again = start_backend()
    assert batch(again, model_dir, requests(*lines)) == (1, answers)
    assert again.accepted == []


def test_all_answered_is_success(start_backend: StartBackend, model_dir: Path, requests: Lines) -> None:
    """With far more lines than slots, and requests of several choices."""
    backend = start_backend(n_slots=16)
    path = requests(*(completion(f"r{i}", n=1 + i % 5) for i in range(120)))
    status, answers = batch(backend, model_dir, path)
    assert status == 0
    assert len(answers) == 120


def n_lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_and_sigterm_end_in_order(
    start_backend: StartBackend, model_dir: Path, requests: Lines, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = start_backend(step_s=0.02)
    path = requests(*(completion(f"r{i}", max_tokens=1 + 400 * (i % 2)) for i in range(30)))
    out = path.with_name("out.jsonl")
    for number in (signal.SIGINT, signal.SIGTERM):

        def stop(number: int = number) -> None:
            wait_until(lambda: n_lines(out) == 15 and backend.open_rows() == 15)
            os.kill(os.getpid(), number)

        thread = threading.Thread(target=stop)
        thread.start()
        status, answers = batch(backend, model_dir, path)
        thread.join(WAIT_S)
        assert status == 130
        assert len(answers) == 15
        wait_until(lambda: backend.open_rows() == 0)
        assert "15 of 30 requests answered: the same command goes on from here" in capfd.readouterr().err
    backend.step_s = 0.001
    status, answers = batch(backend, model_dir, path)
    assert (status, len(answers)) == (0, 30)


@pytest.mark.slow
def test_a_backend_that_ends_loses_nothing(
    start_backend: StartBackend, model_dir: Path, requests: Lines, capfd: pytest.CaptureFixture[str]
) -> None:
    backend = start_backend(step_s=0.02)
    path = requests(*(completion(f"r{i}", max_tokens=1 + 400 * (i % 2)) for i in range(10)))

    def hang() -> None:
        wait_until(lambda: n_lines(path.with_name("out.jsonl")) == 5)
        backend.frozen.set()

    threading.Thread(target=hang).start()
    status, answers = batch(backend, model_dir, path)
    assert status == 1
    assert [answer["response"]["status_code"] for answer in answers] == [200] * 5
    assert "the same command goes on from here" in capfd.readouterr().err


def test_only_json_is_written_as_an_answer(
    start_backend: StartBackend, model_dir: Path, requests: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the file could not be read, and not be gone on with."""

    async def streamed(*_: object) -> Response:
        return Response(200, {"content-type": "text/event-stream; charset=utf-8"}, b"data: [DONE]\n\n")

    monkeypatch.setattr(run, "post", streamed)
    status, (answer,) = batch(start_backend(), model_dir, requests(completion("a")))
    assert status == 1
    assert (answer["custom_id"], answer["response"]) == ("a", None)
    assert answer["error"]["code"] == "invalid_answer"
    assert "text/event-stream" in answer["error"]["message"]
    assert batch(start_backend(), model_dir, requests(completion("a"))) == (1, [answer])


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ("nonsense\n", "line 1 is no answer of a batch"),
        ("[1]\n", "line 1 is no answer of a batch"),
        ('{"id":"batch_req_1","custom_id":5}\n', "line 1 is no answer of a batch"),
        (
            '{"id":"batch_req_1","custom_id":"other","response":null}\n',
            "line 1 answers none of these requests",
        ),
        ("a letter", "line 1 is no answer of a batch"),
        ('{"id":"batch_res', "line 1 is no answer of a batch"),
        ('{"a":1}\n{"b":2}', "line 1 is no answer of a batch"),
        ('{"id":"batch_req_1","custom_id":"a","response":null}\nnotes', "line 2 is no answer of a batch"),
    ],
)
def test_another_file_is_not_written_to(
    answers: str,
    message: str,
    start_backend: StartBackend,
    model_dir: Path,
    requests: Lines,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = requests(completion("a"))
    out = path.with_name("out.jsonl")
    out.write_text(answers)
    assert cli.main(["batch", str(model_dir), str(path), str(out), f"--ring={start_backend().path}"]) == 1
    assert message in capfd.readouterr().err
    assert out.read_text() == answers


@pytest.mark.parametrize("link", [None, os.link, os.symlink])
def test_answers_go_to_another_file_than_the_requests(
    link: Callable[[Path, Path], None] | None,
    model_dir: Path,
    requests: Lines,
    capfd: pytest.CaptureFixture[str],
) -> None:
    path = requests(json.dumps(completion("a")))  # without an end, as if it had been written in part
    out = path
    if link is not None:
        link(path, out := path.with_name("out.jsonl"))
    before = path.read_bytes()
    assert cli.main(["batch", str(model_dir), str(path), str(out), "--ring=none"]) == 1
    assert "the requests are in this file: give another one for the answers" in capfd.readouterr().err
    assert path.read_bytes() == before


def test_answers_go_to_a_regular_file(
    model_dir: Path, requests: Lines, capfd: pytest.CaptureFixture[str]
) -> None:
    """What they are written to is read first, and cut where it has half a line."""
    path = requests(completion("a"))
    os.mkfifo(fifo := path.with_name("fifo"))
    for out in ("/dev/null", str(fifo)):
        assert cli.main(["batch", str(model_dir), str(path), out, "--ring=none"]) == 1
        assert f"{out} is no regular file" in capfd.readouterr().err


def test_lines_are_read_when_there_is_room_for_them() -> None:
    async def scenario() -> None:
        room, lines = (
            Room(100),
            iter([Line(n, b"x" * size, True) for n, size in enumerate((40, 60, 1, 500), 1)]),
        )
        first, second = await room.next(lines), await room.next(lines)
        assert first is not None
        assert second is not None
        third = asyncio.create_task(room.next(lines))
        fourth = asyncio.create_task(room.next(lines))
        await asyncio.sleep(0.01)
        assert not third.done()
        room.leave(first)
        small = await third
        assert small is not None
        room.leave(small)
        await asyncio.sleep(0.01)
        assert not fourth.done()
        room.leave(second)
        large = await fourth  # longer than all may be together, and alone
        assert large is not None
        assert len(large.content) == 500
        room.leave(large)
        assert await room.next(lines) is None

    asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


@pytest.mark.slow
def test_large_lines_are_answered(start_backend: StartBackend, model_dir: Path, requests: Lines) -> None:
    """More of them than may be open together, whatever the slots say."""
    path = requests(*(completion(f"r{i}", user="x" * (6 << 20)) for i in range(14)))
    status, answers = batch(start_backend(), model_dir, path)
    assert (status, len(answers)) == (0, 14)
