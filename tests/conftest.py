"""What all tests share: C and C++ test programs, compiled once (compilation.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import compilation
import pytest


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):  # once, not in every worker of xdist
        compilation.remove_unused()


@pytest.fixture(scope="session")
def build_program() -> Callable[..., Path]:
    """compilation.build"""
    return compilation.build
