"""Messages that cannot be written harm nobody: no exception, no wait."""

from __future__ import annotations

import fcntl
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from limits import PROGRAM_S, START_S, WAIT_S
from serve_process import ROOT, complete

from blink.stderr import LogFile, Stderr


def test_lines_are_written_whole_and_in_order(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        stderr = Stderr(file.fileno())
        print("a", "é\ud800", 3, file=stderr)
        stderr.write("progress")
        assert (tmp_path / "log").read_bytes() == b"a \xc3\xa9\\ud800 3\n"
        stderr.flush()
        print(" ends", file=stderr, flush=True)
    assert (tmp_path / "log").read_bytes().endswith(b"\nprogress ends\n")


def full_disk() -> tuple[int, Callable[[], object]]:
    return os.open("/dev/full", os.O_WRONLY), lambda: None


def nobody_reads() -> tuple[int, Callable[[], object]]:
    read_end, write_end = os.pipe()
    os.close(read_end)
    return write_end, lambda: None


def reader_stands_still() -> tuple[int, Callable[[], object]]:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, 4096)
    return write_end, lambda: os.read(read_end, 1 << 20)


def socket_stands_still() -> tuple[int, Callable[[], object]]:
    ours, theirs = socket.socketpair()
    return ours.detach(), lambda: theirs.recv(1 << 24)


@pytest.mark.parametrize("broken", [full_disk, nobody_reads, reader_stands_still, socket_stands_still])
def test_what_cannot_be_written_is_dropped_at_once(
    broken: Callable[[], tuple[int, Callable[[], object]]],
) -> None:
    descriptor, _ = broken()
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    stderr = Stderr(descriptor)
    logger = logging.getLogger("test_stderr")
    logger.addHandler(handler := logging.StreamHandler(stderr))
    done = threading.Event()

    def write() -> None:
        for i in range(2000):
            print(f"line {i} " + "x" * 500, file=stderr, flush=True)
            logger.error("%d", i)
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert done.wait(WAIT_S), "it waits for somebody who does not read"
    logger.removeHandler(handler)
    assert fcntl.fcntl(descriptor, fcntl.F_GETFL) == flags  # others write to the same pipe
    os.close(descriptor)


def test_what_was_lost_is_counted_when_it_goes_on() -> None:
    descriptor, read = reader_stands_still()
    stderr = Stderr(descriptor)
    for i in range(100):
        print(f"line {i} " + "x" * 500, file=stderr)
    read()
    print("after", file=stderr)
    told = read()
    assert isinstance(told, bytes)
    assert told.startswith(b"blink: 9")
    assert told.endswith(b" messages could not be written\nafter\n")


def test_a_closed_stderr_is_none() -> None:
    program = "from blink.cli import main; import sys; sys.exit(main(['frontend', '/nowhere']))"
    command = f'"{sys.executable}" -c "{program}" 2>&-'
    assert subprocess.run(command, shell=True, cwd=ROOT, timeout=PROGRAM_S, check=False).returncode == 1


@pytest.mark.slow
def test_a_service_outlives_the_reader_of_its_log() -> None:
    """`blink serve 2>&1 | head -1`, and a frontend that has something to say afterwards."""
    read_end, write_end = os.pipe()
    command = [sys.executable, "-m", "blink", "serve", "demo", "--device=cpu", "--port=0", "--threads=1"]
    with subprocess.Popen(command, cwd=ROOT, stderr=write_end, process_group=0) as process:
        os.close(write_end)
        log = os.fdopen(read_end)
        line = next(line for line in log if "ready after" in line)
        log.close()
        url = line.rsplit(" ", 1)[1].strip().removesuffix("/v1")
        with httpx.Client(base_url=url, timeout=WAIT_S) as client:
            (frontend,) = _children(process.pid, "frontend")
            os.kill(frontend, 9)
            deadline = time.monotonic() + START_S
            while time.monotonic() < deadline:
                try:
                    if client.get("/health").status_code == 200 and frontend not in _children(
                        process.pid, "frontend"
                    ):
                        break
                except httpx.TransportError:
                    time.sleep(0.1)
            assert complete(client, "Count from 1 to 5.", max_tokens=20)
        process.terminate()
        assert process.wait(WAIT_S) == 0


def _children(parent: int, plane: str) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=,args=", "--ppid", str(parent)], capture_output=True, text=True)
    return [int(line.split()[0]) for line in found.stdout.splitlines() if f" blink {plane} " in line]


def test_a_log_file_that_nobody_reads_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match="No such device or address"):
        LogFile(tmp_path / "fifo")
