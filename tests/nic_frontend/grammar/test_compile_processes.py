"""Processes that compile grammars: they die at a bad moment, do not start, or have been broken out of."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from limits import WAIT_S
from process_state import children
from sources import MAX_WORDS, schema_source, slow_source, source_of_choice

from nic_frontend.compiling.compilers import SHORT_LEVELS, Compilers, Job, NoCompilers
from nic_frontend.compiling.protocol import READY, Answer, Outcome, packed, start_frame
from nic_frontend.compiling.worker import Worker
from nic_frontend.observe.metrics import Metrics


def job_of_choice(text: str) -> Job:
    return Job(json.dumps(source_of_choice(text)).encode(), 0)


def slow_job() -> Job:
    return Job(json.dumps(slow_source(1)).encode(), 1)


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def is_up(worker: Worker | None) -> bool:
    return worker is not None and worker.is_ready


def run(work: Callable[[Compilers], Awaitable[None]], counts: Metrics | None = None) -> None:
    async def body() -> None:
        compilers = Compilers(start_frame([], MAX_WORDS), MAX_WORDS, counts or Metrics())
        try:
            await asyncio.wait_for(work(compilers), WAIT_S)
        finally:
            compilers.close()

    asyncio.run(body())


async def worker_at(compilers: Compilers, job: Job) -> Worker:
    """Whoever works at a long slice of it."""
    await until(lambda: job in compilers._jobs and job.level >= SHORT_LEVELS)
    worker = compilers._workers[compilers._jobs.index(job)]
    assert worker is not None
    return worker


def test_what_a_process_dies_of_is_not_told_of_the_one_that_takes_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client leaves before that is known."""
    known = threading.Event()

    async def work(compilers: Compilers) -> None:
        before = {*children(os.getpid())}
        compilers.start()
        await until(lambda: all(map(is_up, compilers._workers)))
        job = slow_job()
        asked = asyncio.ensure_future(compilers.compile(job))
        worker = await worker_at(compilers, job)
        assert worker._process is not None
        place, process = compilers._workers.index(worker), worker._process
        wait = process.wait

        def late(timeout: float | None = None) -> int:
            known.wait(WAIT_S)
            return wait(timeout)

        monkeypatch.setattr(process, "wait", late)
        os.kill(process.pid, signal.SIGSEGV)
        await until(lambda: worker._ending is not None)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        successor = compilers._workers[place]
        assert successor is not None
        assert successor is not worker
        await until(lambda: is_up(successor))
        known.set()
        await asyncio.gather(*compilers._background)
        for i in range(8):  # the end of the first would be told among these
            answer = await compilers.compile(job_of_choice(f"{i}"))
            assert answer.outcome == Outcome.BLOCK
        assert compilers._workers[place] is successor
        assert len({*children(os.getpid())} - before) == len(compilers._workers)

    run(work)


ANSWER = packed(Answer(Outcome.REFUSED, 0.0, b"x"))


@pytest.mark.parametrize("frames", [[READY, READY], [READY, ANSWER], [ANSWER], [b""]])
def test_a_process_that_says_what_it_was_not_asked_is_ended(frames: list[bytes]) -> None:
    worker = Worker(b"", MAX_WORDS)
    told: list[str] = []
    worker.on_end = lambda why, to_blame: told.append(why)
    for frame in frames:
        worker._on_frame(frame)
    assert len(told) == 1
    assert not worker.is_ready


def test_a_process_that_is_ready_twice_does_not_keep_its_place() -> None:
    """While it works: it has no more time to answer than any other."""

    async def work(compilers: Compilers) -> None:
        job = slow_job()
        asked = asyncio.ensure_future(compilers.compile(job))
        worker = await worker_at(compilers, job)
        worker._on_frame(READY)
        assert worker not in compilers._workers
        answer = await asked
        assert (answer.outcome, answer.content) == (Outcome.REFUSED, b"its answer makes no sense")
        assert (await compilers.compile(job_of_choice("x"))).outcome == Outcome.BLOCK

    run(work)


def test_a_process_answers_so_often_and_then_another_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where nobody who breaks out of it can reach."""
    monkeypatch.setattr("nic_frontend.compiling.worker.MOST_ANSWERS", 2)

    counts = Metrics()

    async def work(compilers: Compilers) -> None:
        compilers.start()
        await until(lambda: all(map(is_up, compilers._workers)))
        first = set(compilers._workers)
        for i in range(3):
            assert (await compilers.compile(job_of_choice(f"{i}"))).outcome == Outcome.BLOCK
        assert counts.grammar_process_restarts >= 1
        assert not first >= set(compilers._workers)

    run(work, counts)


@pytest.mark.parametrize("place", range(2))
def test_what_cannot_be_started_is_done_without_and_tried_again(
    place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that is left also works at what takes long."""
    fails = True
    start = Worker.start

    async def work(compilers: Compilers) -> None:
        async def starts(worker: Worker) -> None:
            if fails and compilers._workers.index(worker) == place:
                raise OSError("no memory")
            await start(worker)

        nonlocal fails
        monkeypatch.setattr(Worker, "start", starts)
        job = job_of_choice("x")
        job.level = SHORT_LEVELS
        assert (await compilers.compile(job)).outcome == Outcome.BLOCK
        await until(lambda: compilers._workers[place] is None)  # else it is being tried again just now
        fails = False
        await until(lambda: is_up(compilers._workers[place]))

    monkeypatch.setattr("nic_frontend.compiling.compilers.RETRY_S", 0.2)
    run(work)


def test_where_nothing_can_be_started_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def starts(worker: Worker) -> None:
        raise OSError("no memory")

    async def work(compilers: Compilers) -> None:
        for _ in range(2):
            with pytest.raises(NoCompilers):
                await compilers.compile(slow_job())
        monkeypatch.undo()
        assert (await compilers.compile(job_of_choice("x"))).outcome == Outcome.BLOCK

    monkeypatch.setattr(Worker, "start", starts)
    run(work)


CLASSES = (r"^\S+$", r"^\W$", r"^\D+$", r"^\p{Lu}$", r"^[^\w\P{L}]$")


def test_a_class_of_unicode_is_no_large_grammar() -> None:
    """Also not for processes that have just been started."""

    async def work(compilers: Compilers) -> None:
        schemas = [{"properties": {"a": {"type": "string", "pattern": pattern}}} for pattern in CLASSES]
        jobs = [Job(json.dumps(schema_source(schema)).encode(), 0) for schema in schemas]
        answers = await asyncio.gather(*map(compilers.compile, jobs))
        assert {answer.outcome for answer in answers} == {Outcome.BLOCK}
        assert max(job.level for job in jobs) < SHORT_LEVELS

    run(work)


# A compiler with a fault that nobody foresaw, behind the grammar it warms up with.
FAULTY = """
import sys
from nic_frontend.compiling import compile_process
made, sound = [], compile_process.expression_of
def faulty(*arguments):
    made.append(1)
    if len(made) > 1:
        print("noise", file=sys.stderr, flush=True)
        raise KeyError("first line\\nsecond line")
    return sound(*arguments)
compile_process.expression_of = faulty
compile_process.main()
"""


def test_a_fault_of_the_compiler_is_logged_and_costs_no_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Also where what the frontend prints goes to a file, which its processes cannot write."""
    monkeypatch.setattr(
        "nic_frontend.compiling.worker.command",
        lambda module, *arguments: [sys.executable, "-c", FAULTY, *map(str, arguments)],
    )

    counts = Metrics()

    async def work(compilers: Compilers) -> None:
        for i in range(2):
            answer = await compilers.compile(job_of_choice(f"{i}"))
            assert answer.outcome == Outcome.REFUSED
            assert answer.content == b"the compiler fails on it (KeyError)"
        assert counts.grammar_process_restarts == 0

    printed = tmp_path / "stderr"
    kept = os.dup(2)
    try:
        with printed.open("wb") as file:
            os.dup2(file.fileno(), 2)
            run(work, counts)
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert printed.read_bytes() == b""
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("KeyError: 'first line" in line and "\n" not in line for line in lines)
