"""Other tenants of a machine, as in the Blink paper (section 6.1): a compressor, and a build of C++ sources.

The paper runs pbzip2 over 50 GB with 45 threads, and Ninja on LLVM with 45 jobs, on the 90 cores that are
not reserved for the server. Here there are as many compressor's threads and build's jobs together as there
are cores, half of each, and all of them may run on any of the cores. Neither ends by itself.
What runs is named in the result, because a machine may have neither compressor nor compiler:

- pbzip2, or pigz, of text; without both, Python's bz2 in as many processes (compressor.py);
- Ninja and a C++ compiler, on sources that include much of the standard library and use it; without them,
  `spawn` of blink-antagonist, which starts short processes that behave like a compiler's.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from bench.process_sessions import end_sessions

from blink.bench.antagonists import Antagonists
from blink.bench.cpu_time import Watched, seconds
from blink.bench.words import WORDS
from blink.errors import CommandError
from ringbuffer.parent import ask_for_death_signal

COMPRESSOR = Path(__file__).with_name("compressor.py")
COMPRESSORS = ("pbzip2", "pigz")
COMPILERS = ("c++", "g++", "clang++")
TEXT_BYTES = 16 << 20  # beyond a compressor's window: what is repeated behind it is not found
LEAST_CORES = 2  # one for each
UNITS = 20_000  # translation units of a build: of more minutes than a measurement, on any machine
SOURCE = """#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <regex>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

std::map<std::string, std::vector<std::string>> found(const std::string& text) {
  std::map<std::string, std::vector<std::string>> result;
  const std::regex word("([a-z]+)=([0-9]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
    result[(*at)[1]].push_back((*at)[2]);
  for (auto& [name, values] : result) std::sort(values.begin(), values.end(), std::greater<>());
  return result;
}
"""


class Tenants:
    """At work between enter and exit; `result` then says what ran, and how much processor time it took. (That
    of blink-antagonist is not among it: `build_work` counts its processes.)

    At the exit all that was started has ended, whatever process groups it made for itself: a compiler that
    went on would disturb a window that is to have no tenants. What was started directly gets SIGKILL when the
    thread that entered ends; a compiler that is at work then ends by itself. Raises CommandError at the entry
    where something cannot be started or written, and at the exit where a tenant ended before it, or does not
    end.
    """

    def __init__(self, cores: Sequence[int], scratch: Path) -> None:
        if len(cores) < LEAST_CORES:
            raise ValueError(f"{len(cores)} cores are too few for a compressor and a build")
        self._cores = tuple(cores)
        self._scratch = scratch
        self._processes: list[subprocess.Popen[bytes]] = []
        self._antagonists: Antagonists | None = None
        self._directory: Path | None = None  # of the build
        self.result: dict[str, Any] = {}

    def __enter__(self) -> Tenants:
        jobs = len(self._cores) // 2
        threads = len(self._cores) - jobs
        try:
            self.result = {
                "cores": list(self._cores),
                "compressor": self._compress(threads),
                "compressor_threads": threads,
                "build": self._build(jobs),
                "build_jobs": jobs,
            }
        except OSError as error:
            self._end()
            raise CommandError(f"tenants cannot be started: {error}") from error
        except BaseException:
            self._end()
            raise
        self._began = time.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        watched = Watched("tenants", tuple(process.pid for process in self._processes))
        self.result |= {"cpu_s": seconds(watched), "wall_s": time.monotonic() - self._began}
        ended = [process.args for process in self._processes if has_ended(process.pid)]
        self._end()
        if ended and error is None:
            told = (self._scratch / "tenants.log").read_text(errors="replace").splitlines()[-3:]
            raise CommandError(f"a tenant ended while it was needed: {ended[0]!r}: {' '.join(told)}")

    def _end(self) -> None:
        try:
            end_sessions([process.pid for process in self._processes])
        finally:
            for process in self._processes:
                process.kill()
                process.wait()
            if self._antagonists is not None:
                self._antagonists.__exit__(None, None, None)
                self.result["build_work"] = self._antagonists.work
            if self._directory is not None:
                shutil.rmtree(
                    self._directory, ignore_errors=True
                )  # what stays goes with the scratch directory

    def _compress(self, threads: int) -> str:
        words = [sys.executable, str(COMPRESSOR), str(self._text())]
        name = next((name for name in COMPRESSORS if shutil.which(name)), None)
        if name is not None:
            self._start([*words, name, "-c", f"-p{threads}"])
            return name
        for _ in range(threads):
            self._start(words)
        return "bz2 of Python, one process a thread"

    def _build(self, jobs: int) -> str:
        compiler = next((name for name in COMPILERS if shutil.which(name)), None)
        if compiler is None or shutil.which("ninja") is None:
            self._antagonists = Antagonists(("spawn",), 1, self._cores[:jobs]).__enter__()
            return "spawn of blink-antagonist"
        # A new one each time: Ninja would not build again what is there.
        directory = self._directory = Path(tempfile.mkdtemp(prefix="build-", dir=self._scratch))
        (directory / "unit.cpp").write_text(SOURCE)
        # An object is removed as soon as it is there: all of them would fill a disk.
        rule = f"rule compile\n  command = {compiler} -std=c++17 -O2 -c unit.cpp -o $out && rm -f $out\n"
        edges = "".join(f"build unit{i}.o: compile unit.cpp\n" for i in range(UNITS))
        (directory / "build.ninja").write_text(rule + edges)
        self._start(["ninja", "-C", str(directory), "-j", str(jobs)])
        return f"ninja with {compiler}"

    def _start(self, command: list[str]) -> None:
        cores = set(self._cores)

        def prepare() -> None:
            ask_for_death_signal(signal.SIGKILL)
            os.sched_setaffinity(0, cores)

        with (self._scratch / "tenants.log").open("ab") as log:
            self._processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=prepare, start_new_session=True)
            )

    def _text(self) -> Path:
        """Random words, which compress about as well as prose."""
        path = self._scratch / "text"
        if not path.exists():
            chosen = np.random.default_rng(1).choice(WORDS, TEXT_BYTES // 4)
            path.write_bytes(" ".join(chosen.tolist()).encode()[:TEXT_BYTES])
        return path


def has_ended(pid: int) -> bool:
    """A child; whoever waits for it still can."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
