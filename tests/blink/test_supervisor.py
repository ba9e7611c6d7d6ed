"""`blink serve` as a family of processes: who dies, who is told, who is started again, what is left."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from limits import START_S, WAIT_S
from process_state import alive, stopped
from serve_process import ServeProcess, complete
from waiting import wait_until

from blink.errors import CommandError
from blink.frontend import run_in_realtime
from nic_frontend.ring.host_segment import segment_path

Start = Callable[..., ServeProcess]
QUESTION = "What is 2 + 3?"
STREAM = {"prompt": "Count from 1 to 250.", "max_tokens": 1500, "temperature": 0, "stream": True}


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[ServeProcess] = []

    def one(*flags: str, **options: Any) -> ServeProcess:
        started.append(ServeProcess("--slots=64", *flags, **options))
        return started[-1]

    yield one
    for server in started:
        server.close()


def nothing_is_left(server: ServeProcess, pids: list[int]) -> bool:
    return not server.ring.exists() and not any(alive(pid) for pid in pids)


def test_a_signal_ends_everything_in_order(start: Start) -> None:
    server = start("--frontends=2").wait_ready()
    pids = [*server.backends(), *server.frontends()]
    assert len(pids) == 3
    assert server.stop(WAIT_S, signal.SIGTERM) == 0
    assert nothing_is_left(server, pids)


@pytest.mark.slow
def test_frontends_share_a_unix_socket(start: Start, tmp_path: Path) -> None:
    """While one of them is away the other serves, and the backend's end is told there as everywhere."""
    path = tmp_path / f"blink-{os.getpid()}.sock"
    server = start("--frontends=2", f"--uds={path}").wait_ready()
    pids = [*server.backends(), *(frontends := server.frontends())]
    for _ in range(8):  # of one connection each
        with server.new_client() as client:
            assert complete(client, QUESTION)
    os.kill(frontends[0], signal.SIGKILL)
    for _ in range(8):
        with server.new_client() as client:
            assert complete(client, QUESTION)
    wait_until(lambda: server.output.count("serves again") == 1, START_S, "the frontend again")

    def refused() -> bool:
        with server.new_client() as client:
            return client.get("/health").status_code == 503

    with stopped(server.process.pid):  # else another backend might be there before anybody asks
        os.kill(server.backends()[0], signal.SIGKILL)
        wait_until(refused, WAIT_S, "503 in the backend's absence")
    wait_until(lambda: "the backend serves again" in server.output, START_S, "the backend again")
    assert server.stop(WAIT_S, signal.SIGTERM) == 0
    assert nothing_is_left(server, pids)
    assert not path.exists()


def has_open(pid: int, file: Path) -> bool:
    found = []
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.append(descriptor.readlink())
    return file in found


@pytest.mark.slow
def test_hanging_up_opens_the_log_again_and_ends_nothing(start: Start, tmp_path: Path) -> None:
    """As logrotate asks for: the file is renamed, and then every process writes to a new one of its name."""
    log, renamed = tmp_path / "blink.log", tmp_path / "blink.log.1"
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "first"\nkey = "a key to begin with"\n')
    server = start(f"--log-file={log}", "--log-requests", f"--api-keys={keys}", log=log).wait_ready()
    log.rename(renamed)
    keys.write_text('[[key]]\nname = "second"\nkey = "a key that came later"\n')
    server.process.send_signal(signal.SIGHUP)
    pids = [server.process.pid, *server.backends(), *server.frontends()]
    wait_until(lambda: not any(has_open(pid, renamed) for pid in pids), WAIT_S, "the new log")
    # A frontend looks at its keys every second, too: it may have read them before it heard of the new log.
    wait_until(lambda: "read 1 API keys" in server.output, WAIT_S, "the new keys")
    asked = server.client.get("/v1/models", headers={"authorization": "Bearer a key that came later"})
    assert asked.status_code == 200
    wait_until(lambda: "/v1/models 200" in log.read_text(), WAIT_S, "the request's line")
    assert "/v1/models" not in renamed.read_text()
    assert all(alive(pid) for pid in pids)
    assert server.stop(WAIT_S, signal.SIGINT) == 0
    assert nothing_is_left(server, pids)


def may_run_in_realtime() -> bool:
    check = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(3))"
    return subprocess.run([sys.executable, "-c", check], capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_frontends_keep_to_their_cores_and_run_before_ordinary_work_or_say_why_not(start: Start) -> None:
    core = max(os.sched_getaffinity(0))
    flags, policy, priority = ["--frontend-realtime=3"], os.SCHED_RR, 3
    if not may_run_in_realtime():
        refused = start(*flags)
        assert refused.process.wait(WAIT_S) != 0
        assert "--frontend-realtime: this process may not take priority 3" in refused.output
        flags, policy, priority = [], os.SCHED_OTHER, 0
    server = start("--frontends=2", f"--frontend-cores={core}", *flags).wait_ready()
    complete(server.client, QUESTION)
    for pid in server.frontends():
        threads = [int(thread.name) for thread in Path(f"/proc/{pid}/task").iterdir()]
        assert len(threads) > 1
        assert all(os.sched_getaffinity(thread) == {core} for thread in threads)
        assert {os.sched_getscheduler(thread) for thread in threads} == {policy}
        assert {os.sched_getparam(thread).sched_priority for thread in threads} == {priority}
    assert all(os.sched_getaffinity(pid) == os.sched_getaffinity(0) for pid in server.backends())
    assert {os.sched_getscheduler(pid) for pid in server.backends()} == {os.SCHED_OTHER}


def test_a_priority_that_is_not_granted_is_refused() -> None:
    def without_the_right() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
        with pytest.raises(CommandError, match=r"--frontend-realtime: .* it needs CAP_SYS_NICE"):
            run_in_realtime(3)

    process = multiprocessing.get_context("fork").Process(target=without_the_right)
    process.start()
    process.join(WAIT_S)
    assert process.exitcode == 0


def test_cores_that_do_not_exist_are_refused(start: Start) -> None:
    server = start("--frontend-cores=4000")
    assert server.process.wait(WAIT_S) != 0
    assert "--frontend-cores: this process may use none of the cores 4000" in server.output


@pytest.mark.slow
def test_an_open_stream_finishes_before_the_end(start: Start) -> None:
    server = start(f"--drain-timeout={WAIT_S:g}").wait_ready()
    with server.client.stream("POST", "/v1/completions", json=STREAM) as response:
        lines = response.iter_lines()
        next(lines)
        server.process.send_signal(signal.SIGTERM)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert '"finish_reason":"stop"' in rest[-2]
    assert server.process.wait(WAIT_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_at_once(start: Start, number: int) -> None:
    server = start("--drain-timeout=600").wait_ready()
    (backend,) = server.backends()
    os.kill(backend, signal.SIGSTOP)  # the stream cannot finish
    with server.client.stream("POST", "/v1/completions", json=STREAM):
        server.process.send_signal(number)
        notice = "blink: letting open requests finish, at most 600 s"
        wait_until(lambda: notice in server.output, WAIT_S, "word of the wait")
        assert (f"{notice}; Ctrl-C again ends at once" in server.output) == (number == signal.SIGINT)
        assert server.stop(WAIT_S, number) == 128 + number
    assert "blink: ending at once" in server.output
    assert "killing it" not in server.output
    left = (server.ring, segment_path(server.ring))
    wait_until(lambda: not any(path.exists() for path in left), WAIT_S, "the ring gone")


@pytest.mark.slow
def test_the_backends_death_ends_everything_where_it_is_not_to_be_started_again(start: Start) -> None:
    server = start("--backend-restarts=0").wait_ready()
    (backend,) = server.backends()
    pids = [backend, *server.frontends()]
    os.kill(backend, signal.SIGKILL)
    assert server.process.wait(WAIT_S) == 1
    assert "blink: the backend was killed by SIGKILL; stopping" in server.output
    assert nothing_is_left(server, pids)


def let_the_backend_die(server: ServeProcess) -> None:
    """It is started again. Whoever asks meanwhile is told to come back: nobody is refused a connection, or
    waits."""
    n = len(server.frontends())
    (backend,) = server.backends()
    answers: list[httpx.Response] = []

    def ask() -> None:
        with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
            answers.append(client.post("/v1/completions", json={"prompt": QUESTION, "max_tokens": 3}))

    def serves_again() -> bool:
        ask()
        return answers[-1].status_code == 200 and "the backend serves again" in server.output

    with stopped(server.process.pid):  # else another backend might be there before anybody asks
        os.kill(backend, signal.SIGKILL)
        ask()
    wait_until(serves_again, WAIT_S, "the backend's return")
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {answer.status_code for answer in refused} == {503}
    assert all(answer.headers["retry-after"] for answer in refused)
    assert "blink: the backend was killed by SIGKILL" in server.output
    assert "blink: starting the backend again" in server.output
    assert server.backends() != [backend]
    wait_until(lambda: server.output.count("serves again") == n + 1, WAIT_S, "the frontends' return")
    assert complete(server.client, QUESTION).strip() == "5"


@pytest.mark.slow
def test_a_backend_and_then_a_frontend_that_die_are_started_again(start: Start) -> None:
    server = start().wait_ready()
    let_the_backend_die(server)
    (first,) = server.frontends()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: server.output.count("frontend 0 serves again") == 2, WAIT_S, "the frontend's return")
    assert "blink: frontend 0 was killed by SIGKILL" in server.output
    assert server.frontends() != [first]
    with httpx.Client(base_url=server.url, timeout=WAIT_S) as client:
        assert complete(client, QUESTION).strip() == "5"
    assert server.stop(WAIT_S) == 0


@pytest.mark.slow
def test_of_two_frontends_one_serves_while_the_other_is_dead_and_both_when_the_backend_has_died(
    start: Start,
) -> None:
    server = start("--frontends=2").wait_ready()
    suspended = server.frontends()[0]  # dead to its clients, and still there
    os.kill(suspended, signal.SIGSTOP)

    patience = itertools.count(1)

    def answered() -> bool:
        try:  # the kernel gives some connections to the suspended one
            with httpx.Client(base_url=server.url, timeout=0.5 * next(patience)) as client:
                return complete(client, QUESTION).strip() == "5"
        except httpx.TimeoutException:
            return False

    wait_until(answered, WAIT_S, "an answer")
    assert server.process.poll() is None
    os.kill(suspended, signal.SIGCONT)
    let_the_backend_die(server)
    assert server.stop(WAIT_S) == 0


@pytest.mark.slow
def test_the_supervisors_death_ends_its_children(start: Start) -> None:
    server = start("--frontends=2").wait_ready()
    pids = [*server.backends(), *server.frontends()]
    server.process.kill()
    server.process.wait()
    wait_until(lambda: nothing_is_left(server, pids), WAIT_S, "the children's end")


@pytest.mark.slow
def test_a_suspended_supervisor_stalls_nothing_and_a_suspended_backend_is_woken_to_end_in_order(
    start: Start,
) -> None:
    server = start().wait_ready()
    server.process.send_signal(signal.SIGSTOP)
    assert complete(server.client, QUESTION).strip() == "5"
    server.process.send_signal(signal.SIGCONT)
    (backend,) = server.backends()
    os.kill(backend, signal.SIGSTOP)
    assert server.stop(WAIT_S) == 0
    assert not server.ring.exists()


@pytest.mark.slow
def test_two_servers_side_by_side_and_others_on_a_taken_port_or_a_taken_ring(start: Start) -> None:
    """The second has a key from the environment."""
    first, second = start().wait_ready(), start(environment={"BLINK_API_KEY": "secret"}).wait_ready()
    assert first.ring != second.ring
    assert second.client.get("/v1/models").status_code == 401
    second.client.headers["authorization"] = "Bearer secret"
    on_taken_port = start(f"--port={first.url.rsplit(':', 1)[1]}")
    assert on_taken_port.process.wait(WAIT_S) == 1
    assert "is in use by another process" in on_taken_port.output
    on_taken_ring = start(f"--ring={first.ring.name.removeprefix('blink-')}")
    assert on_taken_ring.process.wait(WAIT_S) == 1
    assert "belongs to a running backend" in on_taken_ring.output
    for server in (first, second):
        assert complete(server.client, QUESTION).strip() == "5"
        assert server.ring.exists()
