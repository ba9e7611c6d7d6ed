"""Fixtures for machines with an RDMA device. `scripts/soft-roce scripts/test tests/rdma` runs these tests
where there is none, in a guest that has two: rxe0 at 10.90.0.1, rxe1 at 10.90.0.2, and a cable between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fabric import (
    DEVICES,
    EMULATED,
    KEY,
    PASSIVE_ADDRESS,
    PATIENCE_S,
    StartExchange,
    devices,
    remote_ring,
)
from fixtures import *  # noqa: F403
from fixtures import ring_of_its_own
from harness import Frontend, StartFrontend
from kept import end
from mock_backend import MockBackend

from gpu_backend.rdma.exchange_process import ExchangeProcess
from gpu_backend.rdma.options import RdmaOptions
from nic_frontend.templates import renderer
from ringbuffer import abi

PATIENT = {"attach_timeout_s": 60.0, "grant_timeout_s": 30.0}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if not devices():
        reason = f"no RDMA device under {DEVICES}: run through scripts/soft-roce"
        for item in items:
            if here in item.path.parents:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session", autouse=True)
def patient_with_templates() -> Iterator[None]:
    """Their process takes seconds to start on an emulated processor, and on one that others use, minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "START_S", PATIENCE_S)
        yield


@pytest.fixture(scope="session")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key"
    path.write_bytes(KEY)
    return path


def exchange_of(ring: Path, key_file: Path) -> ExchangeProcess:
    """An exchange for a ring, on the first device."""
    return ExchangeProcess(ring, RdmaOptions(host=PASSIVE_ADDRESS, port=0, key_file=key_file))


@pytest.fixture(scope="module")
def backend(model_dir: Path) -> Iterator[MockBackend]:
    """It, `exchange` and `frontend` serve all tests of a module: they start for longer than a test takes."""
    found = MockBackend(ring_of_its_own(), model_dir, **EMULATED).start()
    yield found
    end(found)


@pytest.fixture(scope="module")
def exchange(backend: MockBackend, key_file: Path) -> Iterator[ExchangeProcess]:
    with closing(exchange_of(backend.path, key_file)) as exchange:
        yield exchange


@pytest.fixture(scope="module")
def frontend(backend: MockBackend, exchange: ExchangeProcess, model_dir: Path) -> Iterator[Frontend]:
    found = Frontend(backend, model_dir, ring=remote_ring(exchange), **PATIENT)
    yield found
    found.stop()


@pytest.fixture
def patient_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that lasts as much longer as the guest is slower."""
    for name in ("ringbuffer.abi", "nic_frontend.ring.backend_monitor"):
        monkeypatch.setattr(f"{name}.LEASE_TIMEOUT_NS", 20 * abi.LEASE_TIMEOUT_NS)


@pytest.fixture
def start_exchange(key_file: Path) -> Iterator[StartExchange]:
    """A function that starts an exchange for a ring, on the first device; all are ended at the end."""
    started: list[ExchangeProcess] = []

    def start(ring: Path) -> ExchangeProcess:
        started.append(exchange_of(ring, key_file))
        return started[-1]

    yield start
    for exchange in started:
        exchange.close()


@pytest.fixture
def start_frontend(model_dir: Path) -> Iterator[StartFrontend]:
    started: list[Frontend] = []

    def start(backend: MockBackend, **options: Any) -> Frontend:
        started.append(Frontend(backend, model_dir, **PATIENT | options))
        return started[-1]

    yield start
    for frontend in started:
        frontend.stop()
