"""The exchange as a process beside the backend: it may die, and be stopped, without the scheduler noticing.

`python -m gpu_backend.rdma.exchange_process RING HOST PORT ...` is started by ExchangeProcess alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from gpu_backend.rdma.exchange_server import ExchangeServer, RingFacts
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.rdma.target import ExportedMemory, register_dmabuf, register_host_memory
from ringbuffer import abi, messages
from ringbuffer.attachment import attach, checked_geometry
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.name import RingError
from ringbuffer.parent import ends_with
from ringbuffer.rdma.exchange_key import ring_key
from ringbuffer.rdma.native import VerbsMissing, device_choice

WHO = "blink backend: exchange"
START_S = 120.0
STOP_S = 5.0
RESTART_PAUSE_S = 1.0  # between two starts of one that does not stay up
WILDCARDS = ("", "0.0.0.0", "::")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ExchangeFailed(RuntimeError):
    """The exchange cannot start; one line that says why and what to do."""


class ExchangeProcess:
    """Owns the process and `memory`, from the constructor to `close`. Raises ExchangeFailed, ValueError.

    `memory` is None for a ring in host memory, which the process maps by its path.
    """

    def __init__(self, ring: Path, options: RdmaOptions, memory: ExportedMemory | None = None) -> None:
        self._passed = () if memory is None else (memory.descriptor,)
        try:
            ring_key(options.key_file)  # a missing key is told before anything is started
            self._command = self._arguments(ring, options, memory)
            self._start()
        except BaseException:
            self._let_memory_go()
            raise

    @staticmethod
    def _arguments(ring: Path, options: RdmaOptions, memory: ExportedMemory | None) -> list[str]:
        return [
            sys.executable, "-m", "gpu_backend.rdma.exchange_process", str(ring), options.host,
            str(options.port), f"--parent={os.getpid()}", f"--log-format={messages.log_format()}",
            *([f"--device={options.rdma_device}"] if options.rdma_device else []),
            *([] if options.gid_index is None else [f"--gid-index={options.gid_index}"]),
            *([f"--key-file={options.key_file}"] if options.key_file else []),
            *([f"--dmabuf={memory.descriptor}", f"--bytes={memory.n_bytes}"] if memory else []),
            *(["--read-back-needed"] if memory and memory.read_back_needed else []),
        ]  # fmt: skip

    def _start(self) -> None:
        self._since = time.monotonic()
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, pass_fds=self._passed)
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        self.address = self._process.stdout.readline().decode().strip() if ready else ""
        if not self.address:
            self._end()
            raise ExchangeFailed("the exchange for frontends on other hosts did not start: see above")

    @property
    def pid(self) -> int:
        return self._process.pid

    def look(self) -> str | None:
        """Starts the process again if it has ended, and then says so. Frontends come back by themselves."""
        status = self._process.poll()
        if status is None or time.monotonic() - self._since < RESTART_PAUSE_S:
            return None
        self._end()
        try:
            self._start()
        except ExchangeFailed as error:
            return str(error)
        return f"the exchange ended with status {status} and was started again at {self.address}"

    def close(self) -> None:
        self._end()
        self._let_memory_go()

    def _let_memory_go(self) -> None:
        for descriptor in self._passed:
            os.close(descriptor)
        self._passed = ()

    def _end(self) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:  # it may be stopped
                self._process.kill()
                self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def instance(ring: Path, header: np.void) -> str:
    """Names this ring among all that this or another start of a backend makes."""
    pid = int(header["backend_pid"])
    name = f"{BOOT_ID.read_text()} {os.stat(ring).st_ino} {pid}"
    return hashlib.sha256(name.encode()).hexdigest()[:32]


async def serve(server: ExchangeServer, listener: socket.socket) -> None:
    task = asyncio.ensure_future(server.serve(listener))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def run(namespace: argparse.Namespace) -> None:
    key = ring_key(namespace.key_file)
    header = read_header(namespace.ring)
    family = socket.AF_INET6 if ":" in namespace.host else socket.AF_INET
    listener = socket.create_server((namespace.host, namespace.port), family=family)
    local = "" if namespace.host in WILDCARDS else listener.getsockname()[0]
    device = device_choice(namespace.device, namespace.gid_index, local)
    facts = RingFacts(
        int(header["n_leases"]), header["fingerprint"].tobytes(), instance(namespace.ring, header)
    )
    with contextlib.ExitStack() as owned:
        if namespace.dmabuf is None:
            region = attach(namespace.ring, writable=True)  # frontends write what they own through it
            owned.callback(region.close)
            target = register_host_memory(region.address, region.n_bytes, device)
        else:
            memory = ExportedMemory(namespace.dmabuf, namespace.bytes, namespace.read_back_needed)
            target = register_dmabuf(memory, device)
        owned.callback(target.close)
        server = ExchangeServer(facts, key, target, lambda: LeaseLock(namespace.ring))
        host, port = listener.getsockname()[:2]
        print(f"{host}:{port}", flush=True)
        asyncio.run(serve(server, listener))


def read_header(ring: Path) -> np.void:
    """The constant part of the header that every ring's file begins with. Raises RingError."""
    with open(ring, "rb") as file:
        header = np.frombuffer(file.read(abi.Header.itemsize), abi.Header)[0]
    checked_geometry(ring, header)
    return np.void(header)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("ring", type=Path)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--device")
    parser.add_argument("--gid-index", type=int)
    parser.add_argument("--key-file", type=Path)
    parser.add_argument("--dmabuf", type=int)
    parser.add_argument("--bytes", type=int)
    parser.add_argument("--read-back-needed", action="store_true")
    parser.add_argument("--parent", type=int, required=True)
    parser.add_argument("--log-format", choices=messages.FORMATS, required=True)
    namespace = parser.parse_args()
    has_parent = ends_with(namespace.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to the backend too, which ends us last
    messages.choose_format(namespace.log_format)
    messages.log_to_standard_error(WHO, "info")
    if not has_parent:
        return 1
    try:
        run(namespace)
    except (OSError, ValueError, RingError, VerbsMissing) as error:
        messages.say(WHO, str(error), "error")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
