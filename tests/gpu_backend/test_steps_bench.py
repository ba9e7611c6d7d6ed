"""What scripts/bench/steps.py asks of a backend."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from bench import steps

from gpu_backend.options import BackendOptions


class Asked(Exception):
    pass


def test_the_steps_of_a_gpu_are_measured_whatever_the_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[BackendOptions] = []

    def backend(options: BackendOptions) -> None:
        asked.append(options)
        raise Asked

    monkeypatch.setattr(steps, "Backend", backend)
    monkeypatch.setattr(sys, "argv", ["steps.py", "--model", "llama-3-8b", "--batch", "8"])
    with pytest.raises(Asked):
        steps.main()
    assert [(one.device, one.transport, one.max_batch) for one in asked] == [("gpu", "shm", 8)]


def test_rows_that_end_too_soon_end_the_measurement() -> None:
    """Once its rows have ended, the scheduler decodes no more steps that could be waited for."""
    stats = {"decode_steps": 1990, "running": 0}
    backend: Any = SimpleNamespace(ring=SimpleNamespace(stats=lambda: stats), fault=lambda: None)
    with pytest.raises(AssertionError, match="lower --steps"):
        steps.wait_for_steps(backend, 2000, batch=8)
