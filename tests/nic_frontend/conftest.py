"""Fixtures: a tiny model, a mock backend over a real ring, and a real server on the loopback
interface, in this process or in one of its own."""

from __future__ import annotations

import pytest
from fixtures import *  # noqa: F403
from frontend_process import *  # noqa: F403
from harness import Frontend, StartBackend, StartFrontend
from mock_backend import MockBackend
from renderers import *  # noqa: F403


@pytest.fixture
def backend(request: pytest.FixtureRequest, start_backend: StartBackend) -> MockBackend:
    if "kept_frontend" in request.fixturenames:
        kept: Frontend = request.getfixturevalue("kept_frontend")
        return kept.backend
    return start_backend()


@pytest.fixture
def frontend(request: pytest.FixtureRequest, backend: MockBackend, start_frontend: StartFrontend) -> Frontend:
    if "kept_frontend" in request.fixturenames:
        kept: Frontend = request.getfixturevalue("kept_frontend")
        return kept
    return start_frontend(backend)
