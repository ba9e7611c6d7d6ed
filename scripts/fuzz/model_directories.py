"""Gives hostile model directories to both planes: each is to be refused in one line, or served within bounds.

    .venv/bin/python scripts/fuzz/model_directories.py [--count 300] [--seconds S] [--seed N] [--corpus]

Every directory is tried in a process of its own, with a limit of time and of memory. The backend's side
reads the description, loads the weights into the CPU's engine and starts its scheduler; the frontend's reads
tokenizer, template and sampling, tokenizes and renders. What was found is in corpus/model_directories.json.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2])]

from fuzz import command  # noqa: E402
from fuzz.directory_case import Case, write  # noqa: E402
from fuzz.directory_cases import draw_case  # noqa: E402

CORPUS = Path(__file__).with_name("corpus") / "model_directories.json"
TIME_S = 180.0  # of one side with one directory, by the clock: more than what it allows its parts
MEMORY_BYTES = 8 << 30  # a bound on what one process allocates, far above what the demo model takes
LONGEST_LINE = 2000
REFUSALS = (ValueError, RuntimeError, OSError)  # what a command tells in one line
KNOWN = 70  # exit status of a process that has said how it ended


@dataclass(frozen=True)
class Outcome:
    """How a side took a directory. `fault`: it did what it must not."""

    kind: str
    told: str
    seconds: float

    @property
    def fault(self) -> bool:
        return self.kind not in ("refused", "served")


def backend_side(directory: Path) -> None:
    from gpu_backend.backend import Backend, BackendError
    from gpu_backend.options import BackendOptions

    name = f"fuzz-{os.getpid()}"
    backend = Backend(
        BackendOptions(directory, ring=name, device="cpu", threads=1, slots=16, kv_memory=1 << 24)
    )
    backend.start()
    if not backend.stop(0.0):
        raise BackendError("the scheduler hangs")


def frontend_side(directory: Path) -> None:
    import asyncio

    from nic_frontend.api.sampling_defaults import read_defaults
    from nic_frontend.errors import ApiError
    from nic_frontend.templates.prompt_end import PromptEnd
    from nic_frontend.templates.renderer import Bounds, open_renderer
    from nic_frontend.text.tokenizer import Tokenizer
    from nic_frontend.text.tokenizer_trial import try_tokenizer
    from ringbuffer.region import model_fingerprint

    model_fingerprint(directory)
    read_defaults(directory)
    try_tokenizer(directory, 1024)
    tokenizer = Tokenizer(directory, 1024)
    renderer = open_renderer(directory, Bounds(2.0, 256 << 20, 1 << 20))

    async def ask() -> None:
        texts = ["hello"]
        messages = [{"role": "user", "content": text} for text in ("hello", "b" * 1000)]
        if renderer is not None:
            texts.append(await renderer.render(messages, PromptEnd.ANSWER, {}))
            texts.append(await renderer.render(messages[:1], PromptEnd.ANSWER, {}))
        for text in texts:
            (tokens,) = await tokenizer.encode([text], special=True, param="prompt")
            await tokenizer.decode([tokens.tolist()])

    try:
        asyncio.run(ask())
    except ApiError as error:
        raise ValueError(str(error)) from error
    finally:
        if renderer is not None:
            renderer.close()


def apart(work: Callable[[Path], None], directory: Path) -> Outcome:
    """`work` in a process of its own, which is killed after TIME_S."""
    began = time.monotonic()
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        _in_child(work, directory, write_end)
    os.close(write_end)
    status = _waited(pid, began + TIME_S)
    with os.fdopen(read_end, errors="replace") as pipe:
        os.set_blocking(pipe.fileno(), False)
        told = pipe.read() or ""
    seconds = time.monotonic() - began
    if status is None:
        return Outcome("takes too long", "", seconds)
    if os.WIFSIGNALED(status):
        return Outcome(f"killed by {signal.Signals(os.WTERMSIG(status)).name}", told, seconds)
    if os.WEXITSTATUS(status) != KNOWN:
        return Outcome(f"exit status {os.WEXITSTATUS(status)}", told, seconds)
    kind, _, told = told.partition(" ")
    if kind == "refused" and ("\n" in told or len(told) > LONGEST_LINE):
        return Outcome("told in more than a line", told, seconds)
    return Outcome(kind, told, seconds)


def _in_child(work: Callable[[Path], None], directory: Path, write_end: int) -> None:
    os.setpgid(0, 0)
    faulthandler.disable()  # of a test that has it on
    limit = _data_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        work(directory)
        told = "served "
    except REFUSALS as error:
        told = f"refused {error}"
    except BaseException as error:
        told = f"{type(error).__name__} {error}"
    os.write(write_end, told.encode(errors="replace")[:60_000])
    os._exit(KNOWN)


def _data_bytes() -> int:
    """What the process has of what RLIMIT_DATA counts: a fork has all that its parent has."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * resource.getpagesize()


def _waited(pid: int, deadline: float) -> int | None:
    """The status of a process that has ended by then; else it is killed with its children."""
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.005)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


SIDES = {"backend": backend_side, "frontend": frontend_side}


def judged(case: Case, directory: Path) -> dict[str, Outcome]:
    """What each side made of a case."""
    write(case, directory)
    return {name: apart(side, directory) for name, side in SIDES.items()}


def main() -> int:
    options = command.parsed(__doc__, "directories", 300, corpus=True)
    first = options.seed
    corpus = json.loads(CORPUS.read_text())
    cases = (
        ((name, name, case) for name, case in corpus.items())
        if options.corpus
        else ((str(seed), *draw_case(seed)) for seed in command.seeds(first, options.count))
    )
    began, counts, faults, slowest = time.monotonic(), Counter[tuple[str, str, str]](), 0, (0.0, "")
    import_both()
    with tempfile.TemporaryDirectory(prefix="blink-fuzz-") as folder:
        for label, kind, case in cases:
            if time.monotonic() - began > options.seconds:
                break
            for side, outcome in judged(case, Path(folder) / "model").items():
                counts[kind, side, outcome.kind] += 1
                slowest = max(slowest, (outcome.seconds, f"{side} with {label}"))
                if outcome.fault:
                    faults += 1
                    print(f"{label} ({kind}): the {side}: {outcome.kind}: {outcome.told[:500]}")
                    print(f"  {json.dumps(case)[:1000]}", flush=True)
    for (kind, side, how), n in sorted(counts.items()):
        print(f"{kind:24} {side:9} {how:12} {n:5}")
    print(f"{faults} faults, seeds from {first}; the slowest took {slowest[0]:.1f} s: the {slowest[1]}")
    return 1 if faults else 0


def import_both() -> None:
    """What every child would import anew."""
    for module in (
        "gpu_backend.backend",
        "nic_frontend.templates.renderer",
        "nic_frontend.text.tokenizer_trial",
    ):
        importlib.import_module(module)


if __name__ == "__main__":
    sys.exit(main())
