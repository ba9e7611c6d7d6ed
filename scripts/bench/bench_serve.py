"""One call of `blink bench serve` against a server that runs, on cores of the load's own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bench.servers import ROOT, Server


@dataclass(frozen=True)
class Client:
    """The processes that make the load."""

    cores: tuple[int, ...]
    processes: int
    seed: int


def bench_serve(
    server: Server,
    name: str,
    out: Path,
    client: Client,
    window_s: float,
    drain_s: float,
    flags: Sequence[str],
    limit_s: float,
    log: Path | None = None,
) -> dict[str, Any]:
    """What the command wrote with --json, to `out`. `name` is the server's in results; what the command says
    goes to the terminal, or is appended to `log`. Raises SystemExit where it was not done within `limit_s`,
    or ended with another status than 0, as it does where no request of a window was completed. What it wrote
    stays in `out`.
    """
    command = [
        sys.executable, "-m", "blink", "bench", "serve", f"http://127.0.0.1:{server.port}",
        f"--name={name}", "--model=m", f"--json={out}", f"--duration={window_s:g}", f"--drain={drain_s:g}",
        f"--clients={client.processes}", f"--seed={client.seed}",
        f"--watch-pid={' '.join(server.watched())}", *flags,
    ]  # fmt: skip
    out.unlink(missing_ok=True)  # an older one would pass for this run's
    with contextlib.ExitStack() as stack:
        told: IO[str] | None = None if log is None else stack.enter_context(log.open("a"))
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                stdout=told,
                stderr=told,
                timeout=limit_s,
                preexec_fn=lambda: os.sched_setaffinity(0, set(client.cores)),
            )
        except subprocess.TimeoutExpired:
            raise SystemExit(f"`blink bench serve` was not done after {limit_s:.0f} s") from None
    if done.returncode or not out.exists():
        raise SystemExit(f"`blink bench serve` failed with status {done.returncode}")
    result: dict[str, Any] = json.loads(out.read_text())
    return result
