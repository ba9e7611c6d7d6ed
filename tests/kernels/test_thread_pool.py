"""The reference engine's thread pool under ThreadSanitizer."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from limits import PROGRAM_S


def test_thread_pool_has_no_race(build_program: Callable[..., Path]) -> None:
    sources = ["tests/kernels/thread_pool_test.cpp", "kernels/reference/thread_pool.cpp"]
    program = build_program("thread_pool_test", sources, "-O1", "-fsanitize=thread")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stderr
