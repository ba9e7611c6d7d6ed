"""Processes for what a model directory brings along: a template is a program, and a tokenizer's regular
expressions may never end. There they can be given up, and what they take is bounded.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence

PR_SET_NO_NEW_PRIVS = 38  # linux/prctl.h
# Libraries would start a thread for each core, and memory for each thread.
FEW_THREADS = {
    "MALLOC_ARENA_MAX": "2",
    "OPENBLAS_NUM_THREADS": "1",
    "RAYON_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RUST_BACKTRACE": "0",
}


def command(module: str, *arguments: object) -> Sequence[str]:
    """Of a process that runs `module` and calls `confine` first."""
    return [sys.executable, "-m", module, *map(str, arguments)]


def environment() -> dict[str, str]:
    """Of such a process: without secrets, such as the key in BLINK_API_KEY."""
    kept = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "TZ", "HOME")
    return {name: os.environ[name] for name in kept if name in os.environ} | FEW_THREADS


def confine(memory_bytes: int) -> None:
    """This process may hold so much memory, write no file, leave no core and gain no rights."""
    for limit, most in (
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(limit)
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))
    ctypes.CDLL(None).prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)


def outlive_signals_to_all() -> None:
    """Ctrl-C, `timeout` and service managers signal every process of a group. The frontend ends in order, and
    may need this process until it closes its socket.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def be_quiet() -> None:
    """What this process prints from now on goes nowhere. Its frontend's log may be a file, which a confined
    process cannot write: to print would be an error, and another one in who handles the first.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    os.close(nowhere)
