"""What all tests share: C and C++ test programs, compiled once (compilation.py)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import compilation
import pytest


def pytest_configure() -> None:
    """Tests that run side by side have a core each: torch and numpy, which are imported later, would start a
    thread for every core in every worker, and those that wait for each other keep the cores busy."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, not in every worker of xdist
        compilation.remove_unused()


@pytest.fixture(scope="session")
def build_program() -> Callable[..., Path]:
    """compilation.build"""
    return compilation.build
