"""What a supervisor does about starts that fail, with children that the test plays."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
from limits import WAIT_S

from blink import supervisor
from blink.supervisor import Supervisor
from blink.supervisor_options import SupervisorOptions
from ringbuffer.name import owner_pid
from ringbuffer.region import Geometry, ModelFacts, Region, create

START_S = 60.0  # which pass when a test says so
TURNS = 50  # of the event loop: more than there are steps from a time that is over to what is done about it
PID = os.getpid()  # of all children that are played
FACTS = ModelFacts(bytes(range(32)), "a model", "cpu", 1000, 512, 8, 64, 16)


class PlayedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock a test moves on."""

    ahead_s = 0.0

    def time(self) -> float:
        return super().time() + self.ahead_s


async def pass_time(seconds: float) -> None:
    """What is due by then is done when this returns."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PlayedLoop)
    await turn()
    loop.ahead_s += seconds
    await turn()


async def turn() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class PlayedProcess:
    """Like asyncio's Process, but it ends when the test says so."""

    def __init__(self, ready_fd: int) -> None:
        self.pid = PID
        self.returncode: int | None = None
        self._ready_fd = ready_fd
        self._ended = asyncio.Event()

    def serves(self) -> None:
        os.write(self._ready_fd, b"ready")
        os.close(self._ready_fd)
        self._ready_fd = -1

    def ends(self, status: int) -> None:
        if self._ready_fd >= 0:
            os.close(self._ready_fd)
        self.returncode, self._ready_fd = status, -1
        self._ended.set()

    def send_signal(self, number: int) -> None:
        if number != signal.SIGCONT:
            self.ends(-number)

    async def wait(self) -> int | None:
        await self._ended.wait()
        return self.returncode


class Children:
    """Those that were started, how often the next start is refused, and what the supervisor says."""

    def __init__(self, path: Path) -> None:
        self.refused = 0
        self.said: list[str] = []
        self.backends: asyncio.Queue[PlayedProcess] = asyncio.Queue()
        self.frontends: asyncio.Queue[PlayedProcess] = asyncio.Queue()
        self.options = SupervisorOptions(
            backend=["backend"], frontend=["frontend"], n_frontends=1, environment={}, ring=path / "ring",
            host="127.0.0.1", port=0, backend_restarts=5, url="http://nowhere", start_timeout_s=START_S,
            drain_s=1.0, frontend_end_s=1.0, backend_end_s=1.0,
        )  # fmt: skip

    async def spawn(
        self, command: Sequence[str], environment: Mapping[str, str], inherited: Sequence[int]
    ) -> tuple[asyncio.subprocess.Process, int]:
        if self.refused:
            self.refused -= 1
            raise OSError("Cannot allocate memory")
        read_end, write_end = os.pipe()
        process = PlayedProcess(write_end)
        (self.backends if command[0] == "backend" else self.frontends).put_nowait(process)
        return cast(asyncio.subprocess.Process, process), read_end

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[PlayedProcess, PlayedProcess]]:
        """While a supervisor runs: the first backend and frontend, which serve."""
        running = asyncio.create_task(Supervisor(self.options).run())
        backend = await self.backends.get()
        backend.serves()
        frontend = await self.frontends.get()
        frontend.serves()
        await self.told("ready after")
        yield backend, frontend
        os.kill(os.getpid(), signal.SIGTERM)
        assert await running == 0

    async def told(self, text: str) -> None:
        while not self.times_said(text):
            await asyncio.sleep(0.001)

    def times_said(self, text: str) -> int:
        return sum(text in line for line in self.said)


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Children:
    made = Children(tmp_path)
    monkeypatch.setattr(supervisor, "spawn", made.spawn)
    monkeypatch.setattr(supervisor, "say", made.said.append)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE_S", 0.01)
    return made


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S + 10 * START_S):  # the clock is moved on as well
            await story()

    with asyncio.Runner(loop_factory=PlayedLoop) as runner:
        runner.run(bounded())


def test_the_time_of_a_start_that_failed_does_not_end_the_one_that_serves(children: Children) -> None:
    async def story() -> None:
        async with children.served() as (backend, _):
            backend.ends(1)
            second = await children.backends.get()
            await pass_time(0.6 * START_S)
            second.ends(1)
            third = await children.backends.get()
            await pass_time(0.6 * START_S)  # now the second one's time is over
            third.serves()
            await pass_time(0.6 * START_S)  # and now the third one's
            assert third.returncode is None

    play(story)


@pytest.mark.parametrize("plane", ["backend", "frontend"])
def test_a_child_that_was_started_again_and_hangs_is_replaced(children: Children, plane: str) -> None:
    async def story() -> None:
        async with children.served() as (backend, frontend):
            started = children.backends if plane == "backend" else children.frontends
            (backend if plane == "backend" else frontend).ends(1)
            hangs = await started.get()
            await pass_time(1.1 * START_S)
            assert hangs.returncode == -signal.SIGKILL
            (await started.get()).serves()
            await children.told("serves again")
            await pass_time(1.1 * START_S)

    play(story)
    assert children.times_said(f"is not ready after {START_S:g} s; killing it") == 1
    assert children.times_said("serves again") == 1


def test_a_frontend_has_its_time_to_start_once_the_backend_serves(children: Children) -> None:
    async def story() -> None:
        async with children.served() as (backend, frontend):
            frontend.ends(1)
            again = await children.frontends.get()
            for _ in range(2):  # also when the backend ends while the frontend's time runs
                backend.ends(1)
                backend = await children.backends.get()
                await pass_time(0.9 * START_S)
                backend.serves()
                await pass_time(0.9 * START_S)
                assert again.returncode is None
            await pass_time(0.2 * START_S)
            assert again.returncode == -signal.SIGKILL

    play(story)


def test_a_start_that_the_system_refuses_is_tried_again(children: Children) -> None:
    async def story() -> None:
        async with children.served() as (_, frontend):
            children.refused = 2
            frontend.ends(1)
            (await children.frontends.get()).serves()
            await children.told("frontend 0 serves again")

    play(story)
    assert children.times_said("frontend 0: Cannot allocate memory") == 2


def test_a_starts_progress_is_told_once(children: Children) -> None:
    async def story() -> None:
        async with children.served() as (backend, _):
            backend.ends(1)
            for _ in range(2):
                (await children.backends.get()).ends(1)
            last = await children.backends.get()
            await pass_time(1.5 * supervisor.PROGRESS_S)
            last.serves()
            await children.told("the backend serves again")
            await pass_time(1.5 * supervisor.PROGRESS_S)

    play(story)
    assert children.times_said("the backend is still starting") == 1


def test_a_ring_of_a_backend_that_was_killed_does_not_outlive_the_service(children: Children) -> None:
    """Though another backend was being started when the end came."""

    async def story() -> None:
        async with children.served() as (backend, _):
            children.options.ring.touch(0o600)
            backend.ends(-signal.SIGKILL)
            await children.backends.get()

    play(story)
    assert not children.options.ring.exists()


def test_a_ring_of_a_living_backend_is_kept_though_its_process_id_is_that_of_ours(children: Children) -> None:
    """A server in another container took the name when our backend had died: both have the same /dev/shm."""

    async def story() -> None:
        nonlocal other
        async with children.served() as (backend, _):
            backend.ends(-signal.SIGKILL)
            await children.backends.get()
            other = create(children.options.ring, Geometry(64, 2, 16384, 8192), FACTS)

    other: Region | None = None
    play(story)
    assert other
    assert owner_pid(children.options.ring) == PID
    other.close()
    assert not children.options.ring.exists()
