#!/usr/bin/env python3
"""Serves a model with blink or with vLLM, and measures both under the same load.

    python scripts/bench/peers.py --server blink --model llama-3-8b --part closed,open
    python scripts/bench/peers.py --server vllm --vllm vllm.tar.xz --model llama-3-8b --part closed,open

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. Parts: `closed`
(1024 tokens in, 256 out, by concurrency), `open` (Poisson, the paper's lengths, by rate), `interference`
(two of those rates, by antagonists on the server's cores). The server starts once, on its own cores; --budget
bounds everything, its start too, and decides how long a window is. Each part leaves one
OUT/SERVER-MODEL-PART.json: what `blink bench serve --json` writes, and under "run" how the server was run.

No tokenizer is in the measurement: prompts are token ids. vLLM runs without detokenizing, its text is empty
(--skip-tokenizer-init); blink has to detokenize, for random weights with a made vocabulary whose every token
is one short word, so that each token is an event in both.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from blink.bench.antagonists import KINDS, cores  # noqa: E402
from blink.bench.cpu_time import tree  # noqa: E402
from blink.child import end_with_parent  # noqa: E402
from blink.flags import checked  # noqa: E402

SHAPES = ROOT / "scripts" / "bench" / "shapes"
CONCURRENCY = "1,8,32,64,128"
RATES = {  # requests/s, up to beyond what the fastest server takes of each shape
    "llama-3.2-1b": "2,4,8,16,24,32,40,48",
    "llama-3-8b": "1,2,4,6,8,10,12,14,16",
    "qwen3-8b": "1,2,4,6,8,10,12,14,16",
    "phi-4": "1,2,3,4,5,6,7,8,10",
    "qwen3-32b": "0.5,1,1.5,2,2.5,3,4",
    "qwen3-30b-a3b": "1,2,3,4,5,6,8",
}
CALM_RATES = {"llama-3.2-1b": "8,24", "llama-3-8b": "4,8", "qwen3-8b": "4,8", "phi-4": "2,4",
              "qwen3-32b": "0.5,1", "qwen3-30b-a3b": "1,3"}  # fmt: skip
PER_CORE = "0,1,4,8"
DRAIN_S = {"closed": 10.0, "open": 15.0, "interference": 15.0}
OVERHEAD_S = 4.0  # of a window, besides its duration and drain: lead, reading, pause
SHORTEST_S, LONGEST_S = 10.0, 60.0
END_S = 40.0  # to stop the server


def make_model(shape: Path, directory: Path) -> Path:
    """A model directory without weights. Token i is the word of i's digits to base 26: no two are alike, none
    is part of a character, and none is empty.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    directory.mkdir(parents=True)
    shutil.copy(shape, directory / "config.json")
    size = int(json.loads(shape.read_text())["vocab_size"])
    space = "Ġ"  # a space in byte-level vocabularies
    tokenizer = Tokenizer(models.BPE(vocab={space + word(i): i for i in range(size)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def word(number: int) -> str:
    letters = ""
    for _ in range(4):  # 26 ** 4 is more than any vocabulary
        number, digit = divmod(number, 26)
        letters += ascii_lowercase[digit]
    return letters


class Server:
    """A server process on its cores, in a context: started, ready, stopped."""

    name: str

    def __init__(self, arguments: argparse.Namespace, model: Path, random_weights: bool) -> None:
        self.environment: dict[str, str] = {}
        self.random_weights = random_weights
        self.cores = arguments.server_cores
        self.limit_s = arguments.start_timeout
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.command = [*self.base(arguments, model), *(arguments.server_flag or [])]

    def base(self, arguments: argparse.Namespace, model: Path) -> list[str]:
        raise NotImplementedError

    def watched(self) -> list[str]:
        """For --watch-pid."""
        return [f"server={self.process.pid}"]

    @contextlib.contextmanager
    def running(self, log: Path) -> Iterator[None]:
        me, chosen = os.getpid(), set(self.cores)

        def prepare() -> None:
            end_with_parent(me)  # a server that stayed would hold the GPU's memory
            os.sched_setaffinity(0, chosen)

        began = time.monotonic()
        with log.open("w") as output:
            self.process = subprocess.Popen(
                self.command,
                cwd=ROOT,
                env={**os.environ, **self.environment},
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=prepare,
            )
        try:
            self.wait_ready(began + self.limit_s, log)
            self.start_s = time.monotonic() - began
            yield
        finally:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def wait_ready(self, deadline: float, log: Path) -> None:
        while True:
            if self.process.poll() is not None or time.monotonic() > deadline:
                tail = "\n".join(log.read_text(errors="replace").splitlines()[-25:])
                raise SystemExit(f"{self.name} did not start:\n{tail}")
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
            try:
                connection.request("GET", "/v1/models")
                if connection.getresponse().status == 200:
                    return
            except (OSError, http.client.HTTPException):
                pass
            finally:
                connection.close()
            time.sleep(0.25)


class Blink(Server):
    name = "blink"

    def base(self, arguments: argparse.Namespace, model: Path) -> list[str]:
        return [
            sys.executable, "-m", "blink", "serve", str(model), f"--port={self.port}",
            f"--frontends={arguments.frontends}", "--served-model-name=m",
            *(["--random-weights"] if self.random_weights else []),
        ]  # fmt: skip

    def watched(self) -> list[str]:
        planes: dict[str, list[str]] = {}
        for pid in tree(self.process.pid) - {self.process.pid}:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            for plane in ("backend", "frontend"):
                if plane.encode() in words:
                    planes.setdefault(plane, []).append(str(pid))
        return [*super().watched(), *(f"{plane}={','.join(pids)}" for plane, pids in planes.items())]


class Vllm(Server):
    name = "vllm"

    def base(self, arguments: argparse.Namespace, model: Path) -> list[str]:
        if arguments.vllm is None:
            raise SystemExit("--server vllm needs --vllm: an archive of an installed vLLM, or its directory")
        site = unpacked(arguments.vllm)
        self.environment = {
            "PYTHONPATH": str(site),
            "VLLM_CACHE_ROOT": str(site.parent / "cache"),
            "VLLM_USE_FLASHINFER_SAMPLER": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "VLLM_DO_NOT_TRACK": "1",
            "HF_HUB_OFFLINE": "1",
        }
        return [
            sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
            "--served-model-name", "m", "--port", str(self.port),
            "--load-format", "dummy" if self.random_weights else "auto",
            "--skip-tokenizer-init", "--dtype", "bfloat16", "--max-model-len", "8192",
            "--max-num-seqs", "128", "--no-enable-prefix-caching", "--gpu-memory-utilization", "0.85",
        ]  # fmt: skip


def unpacked(path: Path) -> Path:
    """The directory with the packages; an archive is unpacked once, beside the build."""
    if path.is_dir():
        return path
    target = ROOT / "build" / "peers" / path.name.split(".")[0]
    if not target.exists():
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        with tarfile.open(path) as archive:
            archive.extractall(partial, filter="data")
        partial.rename(target)
    return target / "site"


def part_flags(part: str, model: str, arguments: argparse.Namespace) -> tuple[list[str], int]:
    """The load's flags, and in how many windows."""
    rates = arguments.rates or (CALM_RATES if part == "interference" else RATES).get(model)
    if part != "closed" and rates is None:
        raise SystemExit(f"--rates is needed: none are known for the model {model}")
    if part == "closed":
        chosen = arguments.concurrency
        return [f"--concurrency={chosen}", "--input=1024", "--output=256"], len(chosen.split(","))
    if part == "open":
        return [f"--rate={rates}"], len(rates.split(","))
    levels = arguments.per_core
    antagonists = [f"--antagonists={','.join(KINDS)}", f"--per-core={levels}"]
    chosen_cores = f"--cores={','.join(map(str, arguments.server_cores))}"
    return [f"--rate={rates}", *antagonists, chosen_cores], len(rates.split(",")) * len(levels.split(","))


def measure(server: Server, part: str, model: str, budget_s: float, arguments: argparse.Namespace) -> None:
    """One part, within the budget. Leaves its JSON."""
    flags, windows = part_flags(part, model, arguments)
    longest = budget_s / windows - DRAIN_S[part] - OVERHEAD_S
    duration = min(LONGEST_S, longest)
    if duration < SHORTEST_S:
        raise SystemExit(
            f"{part}: {budget_s:.0f} s are not enough for {windows} windows of at least {SHORTEST_S:g} s: "
            "raise --budget, or name fewer --concurrency, --rates or --per-core"
        )
    out = arguments.out / f"{server.name}-{model}-{part}.json"
    command = [
        sys.executable, "-m", "blink", "bench", "serve", f"http://127.0.0.1:{server.port}",
        f"--name={server.name}", "--model=m", f"--json={out}", f"--duration={duration:.1f}",
        f"--drain={DRAIN_S[part]:g}", f"--clients={arguments.clients}", f"--seed={arguments.seed}",
        f"--watch-pid={' '.join(server.watched())}", *flags, *(arguments.bench_flag or []),
    ]  # fmt: skip
    chosen = set(arguments.client_cores)
    done = subprocess.run(
        command, cwd=ROOT, timeout=budget_s + 120, preexec_fn=lambda: os.sched_setaffinity(0, chosen)
    )
    if not out.exists():
        raise SystemExit(f"{part}: `blink bench serve` failed with status {done.returncode}")
    result: dict[str, Any] = json.loads(out.read_text())
    result["run"] = {
        "commit": arguments.commit,
        "model": model,
        "random_weights": server.random_weights,
        "server_command": server.command,
        "server_cores": list(arguments.server_cores),
        "server_start_s": server.start_s,
        "gpu": gpu(),
        "versions": versions(),
    }
    out.write_text(json.dumps(result, indent=1) + "\n")


def gpu() -> str | None:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if shutil.which(query[0]) is None:
        return None
    return subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout.strip()


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "uvicorn", "uvloop", "transformers", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", choices=("blink", "vllm"), required=True)
    parser.add_argument("--model", required=True, help="a directory, or a name of scripts/bench/shapes")
    parser.add_argument("--part", default="closed", help="closed, open, interference; several with commas")
    parser.add_argument("--out", type=Path, default=Path("scripts/bench/results/latest"))
    parser.add_argument("--budget", type=float, default=540.0, metavar="SECONDS", help="for everything")
    parser.add_argument("--start-timeout", type=float, default=240.0, metavar="SECONDS")
    parser.add_argument("--vllm", type=Path, metavar="PATH", help="archive with site/, or a directory")
    parser.add_argument("--server-cores", type=checked(cores), default="0-11")
    parser.add_argument("--client-cores", type=checked(cores), default="12-15")
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--frontends", type=int, default=2, help="of blink")
    parser.add_argument("--concurrency", default=CONCURRENCY, help="of the part closed")
    parser.add_argument("--rates", help="of the parts open and interference")
    parser.add_argument(
        "--per-core", default=PER_CORE, help="antagonist threads on each of the server's cores"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--commit", default="unknown", help="what is measured, for the record")
    parser.add_argument("--server-flag", action="append", help="one more flag for the server")
    parser.add_argument("--bench-flag", action="append", help="one more flag for blink bench serve")
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    parts = arguments.part.split(",")
    if unknown := set(parts) - DRAIN_S.keys():
        raise SystemExit(f"unknown part: {', '.join(unknown)}")
    shape, directory = SHAPES / f"{arguments.model}.json", Path(arguments.model)
    if not shape.exists() and not directory.is_dir():
        raise SystemExit(f"{arguments.model} is no directory, and no shape of {', '.join(sorted(RATES))}")
    name = directory.name
    deadline = time.monotonic() + arguments.budget
    arguments.out.mkdir(parents=True, exist_ok=True)
    arguments.out = arguments.out.absolute()
    with tempfile.TemporaryDirectory(prefix="blink-peers-") as scratch:
        if shape.exists():
            directory = make_model(shape, Path(scratch, name))
        server = {"blink": Blink, "vllm": Vllm}[arguments.server](arguments, directory, shape.exists())
        with server.running(arguments.out / f"{server.name}-{name}.log"):
            print(f"{server.name} is ready after {server.start_s:.0f} s", flush=True)
            for i, part in enumerate(parts):
                share = (deadline - time.monotonic()) / (len(parts) - i)
                measure(server, part, name, share, arguments)


if __name__ == "__main__":
    main()
