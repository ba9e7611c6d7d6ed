"""What all tests share: C and C++ test programs, compiled once (compilation.py), and a log that each leaves
as it found it."""

from __future__ import annotations

import gc
import logging
import os
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import compilation
import pytest

from gpu_backend.cuda import compile as compile_cuda
from gpu_backend.cuda import instances
from ringbuffer import messages


def pytest_configure(config: pytest.Config) -> None:
    """Tests fetch nothing (needs.py), as nobody knows how long that takes.

    Those that run side by side have a core each: torch and numpy, which are imported later, would start a
    thread for every core in every worker, and those that wait for each other keep the cores busy."""
    os.environ["BLINK_NO_DOWNLOADS"] = "1"
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if config.pluginmanager.has_plugin("hypothesispytest"):
        from hypothesis import settings  # takes seconds in the guest of scripts/soft-roce, which does without

        # How long an example of a property test takes says only how busy the machine is.
        settings.register_profile("unhurried", settings(), deadline=None)
        settings.load_profile("unhurried")


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, not in every worker of xdist
        compilation.remove_unused()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected and imported stays to the end: some million objects, which no search for garbage has
    to look at."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C does what it does in a program: workers of pytest-xdist ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def build_program() -> Callable[..., Path]:
    """compilation.build"""
    return compilation.build


@pytest.fixture(scope="session", autouse=True)
def many_kernels_cached() -> Iterator[None]:
    """Else the tests of one run, or of two clones, push each other's out of the cache. Those that run side by
    side have a core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compile_cuda, "CACHE_ENTRIES", compilation.CUBINS)
        if "PYTEST_XDIST_WORKER" in os.environ:
            patch.setattr(instances, "PROCESSES", 1)
        yield


@pytest.fixture(autouse=True)
def log_as_before() -> Iterator[None]:
    """Commands that a test calls choose how this process logs, for tests that come later in it too."""
    log_format, clock = messages._as_json, messages._clock
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    messages._as_json, messages._clock = log_format, clock
    logging.root.handlers[:], logging.root.level = handlers, level
