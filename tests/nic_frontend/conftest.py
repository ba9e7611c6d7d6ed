"""Fixtures: a tiny model, a mock backend over a real ring, and a real server on the loopback interface."""

from __future__ import annotations

import pytest
from fixtures import *  # noqa: F403
from harness import Frontend, StartBackend, StartFrontend
from mock_backend import MockBackend


@pytest.fixture
def backend(start_backend: StartBackend) -> MockBackend:
    return start_backend()


@pytest.fixture
def frontend(backend: MockBackend, start_frontend: StartFrontend) -> Frontend:
    return start_frontend(backend)
