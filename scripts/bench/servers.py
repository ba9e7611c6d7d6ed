"""Servers under comparison: started on cores of their own, ready, stopped; and models without weights."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from string import ascii_lowercase

from bench.preset_parts import USUAL_CONTEXT, context_for

from blink.bench.cpu_time import tree
from ringbuffer.parent import ask_for_death_signal

ROOT = Path(__file__).resolve().parent.parent.parent
END_S = 40.0  # to stop a server
HEALTH_S = 10.0  # until it says that it serves
VLLM_PLUGIN = Path(__file__).with_name("vllm_plugin")  # makes random weights


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

    def shown_command(self) -> list[str]:
        """For records, which say nothing of the machine's directories."""
        return [Path(word).name if Path(word).is_absolute() else word for word in self.command]

    def version(self) -> str | None:
        """Of a server that is not of this checkout; None where it does not say so."""
        return None

    def watched(self) -> list[str]:
        """For --watch-pid."""
        return [f"server={self.process.pid}"]

    def stopped_backend(self) -> contextlib.AbstractContextManager[None]:
        raise SystemExit(f"{self.name} has no backend that it could do without")

    def ended(self) -> str | None:
        """How it ended, of a server that was ready; None while it serves. A process that is there still, but
        does not serve, as when what it runs on the GPU has died, has ended, too.
        """
        status = self.process.poll()
        if status is not None:
            how = f"status {status}" if status >= 0 else signal.Signals(-status).name
            return f"{self.name} ended with {how}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=HEALTH_S)
        try:
            connection.request("GET", "/health")
            answer = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            return f"{self.name} does not answer any more: {error!r}"
        finally:
            connection.close()
        return f"{self.name} is not healthy any more: status {answer}" if answer >= 500 else None

    @contextlib.contextmanager
    def running(self, log: Path) -> Iterator[None]:
        chosen = set(self.cores)

        def prepare() -> None:
            ask_for_death_signal()  # a server that stayed would hold the GPU's memory
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
        apart = arguments.frontend_cores
        context = context_for(arguments.part.split(","), model)
        return [
            sys.executable, "-m", "blink", "serve", str(model), f"--port={self.port}",
            f"--frontends={arguments.frontends}", "--served-model-name=m",
            *(["--random-weights"] if self.random_weights else []),
            *([f"--frontend-cores={','.join(map(str, apart))}"] if apart else []),
            *([f"--max-context={context}"] if context else []),
        ]  # fmt: skip

    @contextlib.contextmanager
    def stopped_backend(self) -> Iterator[None]:
        """By SIGSTOP: the scheduler and its steps go on without their process."""
        (backend,) = self.planes()["backend"]
        os.kill(backend, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(backend, signal.SIGCONT)

    def planes(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for pid in tree(self.process.pid) - {self.process.pid}:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
                continue
            for plane in ("backend", "frontend"):
                if plane.encode() in words:
                    found.setdefault(plane, []).append(pid)
        return found

    def watched(self) -> list[str]:
        return [
            *super().watched(),
            *(f"{plane}={','.join(map(str, pids))}" for plane, pids in self.planes().items()),
        ]


class Vllm(Server):
    name = "vllm"

    def base(self, arguments: argparse.Namespace, model: Path) -> list[str]:
        if arguments.vllm is None:
            raise SystemExit("--server vllm needs --vllm: an archive of an installed vLLM, or its directory")
        self.site = site = unpacked(arguments.vllm)
        context = context_for(arguments.part.split(","), model) or USUAL_CONTEXT
        cache = (
            ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
            if arguments.prefix_cache
            else ["--no-enable-prefix-caching"]
        )
        self.environment = {
            "PYTHONPATH": os.pathsep.join(map(str, (site, *([VLLM_PLUGIN] if self.random_weights else [])))),
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
            "--skip-tokenizer-init", "--dtype", "bfloat16",
            "--max-model-len", str(context),
            "--max-num-seqs", "128", "--gpu-memory-utilization", "0.85", *cache,
        ]  # fmt: skip

    def version(self) -> str | None:
        found = next(self.site.glob("vllm-*.dist-info"), None)
        return found and found.name.removeprefix("vllm-").removesuffix(".dist-info")


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
