"""blink bench transport: the ways to the ring side by side, each over its own link, against an echo."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blink.bench import environment
from blink.bench.cpu_time import Watched
from blink.bench.cpu_time import seconds as cpu_seconds
from blink.bench.echo_peer import ECHO_FINGERPRINT, EchoPeer, PeerFailed, ring_geometry
from blink.errors import CommandError
from blink.files import writable_file
from blink.flags import Flag, add_flags, count, given
from gpu_backend.rdma.exchange_process import ExchangeFailed, ExchangeProcess
from gpu_backend.rdma.options import RdmaOptions
from nic_frontend.options import FrontendOptions, VerbsRing
from nic_frontend.ring.lease import Lease
from nic_frontend.ring.link_bench import drain, trips
from nic_frontend.ring.token_reader import TokenReader
from nic_frontend.transport.base import Transport, TransportError, read_header
from nic_frontend.transport.cuda_ipc import CudaIpc
from nic_frontend.transport.shm import SharedMemory
from ringbuffer.words import text

DESCRIPTION = """Measures each transport that this machine has, over the link that serving uses. An echo
answers in the scheduler's place: a block of threads on the GPU, or without one a thread on the CPU."""
GRANT_S = 5.0
DRAIN_SLACK_S = 30.0
TRANSPORTS = ("shm", "cuda_ipc", "verbs")
WARM_UP = 0.1  # of the requests, measured before those that count


@dataclass(frozen=True)
class TransportOptions:
    transports: tuple[str, ...] = TRANSPORTS
    rdma_host: str | None = None
    device: str | None = None
    requests: int = 2000
    prompt_tokens: tuple[int, ...] = (32, 1024)
    streams: int = 256
    tokens: int = 1000
    step_us: int = 1000
    json: Path | None = None


@dataclass(frozen=True)
class Way:
    """A transport: how to reach the ring at a path, and which of the backend's transports makes that ring.

    `device` is the echo's unless the user chooses.
    """

    reach: Callable[[Path, TransportOptions], AbstractContextManager[Transport]]
    ring: str
    device: str


@contextmanager
def over_rdma(path: Path, options: TransportOptions) -> Iterator[Transport]:
    """Both ends on this machine, with a key made for this run. Raises PeerFailed, TransportError."""
    from nic_frontend.transport.verbs import Verbs  # not at the top: only this transport loads libibverbs

    if options.rdma_host is None:
        raise PeerFailed("needs --rdma-host ADDRESS, that of an RDMA device of this machine")
    key = secrets.token_hex(32)
    with tempfile.NamedTemporaryFile("w") as key_file:
        key_file.write(key)
        key_file.flush()
        listen = RdmaOptions(host=options.rdma_host, port=0, key_file=Path(key_file.name))
        try:
            exchange = ExchangeProcess(path, listen)
        except ExchangeFailed as error:
            raise PeerFailed(str(error)) from error
        with closing(exchange):
            host, _, port = exchange.address.rpartition(":")
            ring = VerbsRing(host=host, port=int(port), key=key.encode())
            with closing(Verbs(ring, ECHO_FINGERPRINT)) as transport:
                yield transport


WAYS = {
    "shm": Way(lambda path, _: closing(SharedMemory(path)), "shm", "auto"),
    "cuda_ipc": Way(lambda path, _: closing(CudaIpc(path)), "cuda_ipc", "gpu"),
    "verbs": Way(over_rdma, "shm", "auto"),
}


def names(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    if unknown := [name for name in chosen if name not in TRANSPORTS]:
        raise ValueError(f"'{unknown[0]}' is not a transport; there are {', '.join(TRANSPORTS)}")
    return chosen


def counts(text: str) -> tuple[int, ...]:
    return tuple(count(each) for each in text.split(","))


def listed(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


FLAGS = (
    Flag("--transports", "transports", "NAME[,NAME]",
         "what to measure; without this flag, what cannot run here is left out and told", names, show=listed),
    Flag("--rdma-host", "rdma_host", "ADDRESS",
         "for verbs: the address of an RDMA device of this machine, which then talks to itself"),
    Flag("--device", "device", "DEVICE", "where the echo runs: gpu or cpu (default: a GPU if there is one)",
         choices=("gpu", "cpu")),
    Flag("--requests", "requests", "N", "requests of one token, one after the other, a prompt length", count),
    Flag("--prompt-tokens", "prompt_tokens", "N[,N]", "lengths of their prompts", counts, show=listed),
    Flag("--streams", "streams", "N", "answers read at the same time", count),
    Flag("--tokens", "tokens", "N", "tokens of each of these answers", count),
    Flag("--step-us", "step_us", "US", "microseconds between two tokens of an answer", count),
    Flag("--json", "json", "FILE", "write everything that was measured", check=writable_file),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_flags(parser, "measurement", TransportOptions, FLAGS)


def main(namespace: argparse.Namespace) -> int:
    values = given(namespace, FLAGS)
    options = TransportOptions(**values)
    found: dict[str, Any] = {}
    for name in options.transports:
        try:
            found[name] = measure(name, options)
        except (PeerFailed, TransportError) as error:
            if "transports" in values:
                raise CommandError(f"{name}: {error}") from error
            found[name] = {"unavailable": str(error)}
    result = {
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": environment.describe(),
        "options": environment.plain(options),
        "transports": found,
    }
    print(table(found))
    if options.json is not None:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def measure(name: str, options: TransportOptions) -> dict[str, Any]:
    """One transport: what `--json` says of it. Raises PeerFailed, TransportError."""
    way = WAYS[name]
    geometry = ring_geometry(options.streams, max(options.prompt_tokens), options.tokens)
    ring = f"bench-{os.getpid()}-{name}"
    device = options.device or way.device
    with (
        EchoPeer(ring, way.ring, device, geometry, options.step_us) as peer,
        way.reach(peer.path, options) as transport,
    ):
        lease = Lease(transport)
        lease.acquire(GRANT_S)
        latency = [round_trips(transport, lease, n, options.requests) for n in options.prompt_tokens]
        drained = drain_tokens(transport, lease, peer, options)
        header = read_header(transport)
    return {
        "echo": text(header["device_name"].tobytes()),
        "latency": latency,
        "drain": drained,
        "torn_payloads": int(header["stats"]["torn_payloads"]),
    }


def round_trips(transport: Transport, lease: Lease, prompt_tokens: int, n: int) -> dict[str, Any]:
    """Microseconds of n requests of one token."""
    trips(transport, lease, prompt_tokens, max(1, int(WARM_UP * n)))
    began = time.process_time(), time.monotonic()
    found = trips(transport, lease, prompt_tokens, n)
    cores = (time.process_time() - began[0]) / (time.monotonic() - began[1])
    microseconds = {name: spread(found[name] / 1e3) for name in ("posted", "answer", "word")}
    return {"prompt_tokens": prompt_tokens, "requests": n, "cores": cores, **microseconds}


def spread(values: NDArray[np.float64]) -> dict[str, float]:
    p50, p99 = np.percentile(values, (50, 99))
    return {"p50": float(p50), "p99": float(p99), "max": float(values.max())}


def drain_tokens(
    transport: Transport, lease: Lease, peer: EchoPeer, options: TransportOptions
) -> dict[str, Any]:
    """All streams at once, read by the token reader with the settings that serving has."""
    reader = TokenReader(transport, lease, FrontendOptions(ring=peer.path, model_dir=peer.path))
    echo = Watched("echo", (peer.process.pid,))
    try:
        reader.open()
        before = cpu_seconds(echo)
        timeout_s = options.tokens * options.step_us / 1e6 * 10 + DRAIN_SLACK_S
        found = drain(
            reader, transport, options.streams, min(options.prompt_tokens), options.tokens, timeout_s
        )
        wall_s, cpu_s = found.wall_ns / 1e9, found.cpu_ns / 1e9
        return {
            "tokens": int(found.tokens),
            "seconds": wall_s,
            "tokens_per_second": found.tokens / wall_s,
            "cores": cpu_s / wall_s,
            "tokens_per_core_second": found.tokens / cpu_s,
            "echo_process_cores": (cpu_seconds(echo) - before) / wall_s,
        }
    finally:
        reader.close()


def table(found: dict[str, Any]) -> str:
    """The transports side by side, and below them why others are missing."""
    measured = {name: result for name, result in found.items() if "unavailable" not in result}
    rows = [("", list(measured))]
    if measured:
        rows.append(("echo runs on", [result["echo"] for result in measured.values()]))
        lengths = [entry["prompt_tokens"] for entry in next(iter(measured.values()))["latency"]]
        for i, n in enumerate(lengths):
            for title, key in (
                (f"prompt of {n}: posting it", "posted"),
                (f"prompt of {n}: until its token", "answer"),
                (f"prompt of {n}: word, there and back", "word"),
            ):
                cells = (result["latency"][i][key] for result in measured.values())
                rows.append(
                    (f"{title}, us", [f"{c['p50']:.1f} / {c['p99']:.1f} / {c['max']:.0f}" for c in cells])
                )
        for title, key, form in (
            ("tokens/s read", "tokens_per_second", ",.0f"),
            ("cores to read them", "cores", ".2f"),
            ("tokens per core second", "tokens_per_core_second", ",.0f"),
            ("cores of the echo's process", "echo_process_cores", ".2f"),
        ):
            rows.append((title, [format(result["drain"][key], form) for result in measured.values()]))
        rows.append(("payloads read again", [str(result["torn_payloads"]) for result in measured.values()]))
    first = max(len(title) for title, _ in rows)
    width = max((len(cell) for _, cells in rows for cell in cells), default=0) + 2
    lines = [f"{title:<{first}}" + "".join(f"{cell:>{width}}" for cell in cells) for title, cells in rows]
    if measured:
        lines.append("(microseconds are p50 / p99 / max)")
    lines += [f"{name}: {result['unavailable']}" for name, result in found.items() if "unavailable" in result]
    return "\n".join(lines)
