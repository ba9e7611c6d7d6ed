"""The host engine's thread pool under ThreadSanitizer."""

import subprocess
from collections.abc import Callable
from pathlib import Path


def test_thread_pool_has_no_race(build_program: Callable[..., Path]) -> None:
    sources = ["tests/kernels/thread_pool_test.cpp", "kernels/thread_pool.cpp"]
    program = build_program("thread_pool_test", sources, "-O1", "-fsanitize=thread")
    done = subprocess.run([str(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
