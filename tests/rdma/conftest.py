"""Fixtures for machines with an RDMA device. `scripts/soft-roce scripts/test tests/rdma` runs these tests
where there is none, in a guest that has two: rxe0 at 10.90.0.1, rxe1 at 10.90.0.2, and a cable between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric import DEVICES, KEY, PASSIVE_ADDRESS, StartExchange, devices
from fixtures import *  # noqa: F403
from harness import Frontend, StartFrontend
from mock_backend import MockBackend

from gpu_backend.rdma.exchange_process import ExchangeProcess
from gpu_backend.rdma.options import RdmaOptions


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if not devices():
        reason = f"no RDMA device under {DEVICES}: run through scripts/soft-roce"
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_bytes(KEY)
    return path


@pytest.fixture
def start_exchange(key_file: Path) -> Iterator[StartExchange]:
    """A function that starts an exchange for a ring, on the first device; all are ended at the end."""
    started: list[ExchangeProcess] = []

    def start(ring: Path) -> ExchangeProcess:
        options = RdmaOptions(host=PASSIVE_ADDRESS, port=0, key_file=key_file)
        started.append(ExchangeProcess(ring, options))
        return started[-1]

    yield start
    for exchange in started:
        exchange.close()


@pytest.fixture
def start_frontend(model_dir: Path) -> Iterator[StartFrontend]:
    started: list[Frontend] = []

    def start(backend: MockBackend, **options: Any) -> Frontend:
        started.append(
            Frontend(backend, model_dir, **{"attach_timeout_s": 60.0, "grant_timeout_s": 30.0} | options)
        )
        return started[-1]

    yield start
    for frontend in started:
        frontend.stop()
