"""The backend's passive end, held against an initiator that shares no code with the frontend's (pyverbs)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest
from fabric import KEY, devices
from harness import wait_until
from mock_backend import MockBackend
from pyverbs_initiator import Initiator
from scripted_answers import echo

from gpu_backend.rdma.exchange_process import ExchangeProcess
from nic_frontend.library import crc32c
from nic_frontend.transport.exchange_client import Exchange
from ringbuffer import abi
from ringbuffer.abi import Command, LeaseState, State
from ringbuffer.rdma.messages import Claim
from ringbuffer.words import Status, pair_word, request_word

WC_REMOTE_ACCESS = 10  # IBV_WC_REM_ACCESS_ERR
WC_REMOTE_INVALID = 9  # IBV_WC_REM_INV_REQ_ERR


@pytest.fixture
def initiator(backend: MockBackend, exchange: ExchangeProcess) -> Iterator[Initiator]:
    """Connected to the ring, with the backend's only lease."""
    host, port = exchange.address.rsplit(":", 1)
    with ExitStack() as owned:
        connection = Exchange(host, int(port), KEY)
        owned.callback(connection.close)
        found = Initiator(devices()[-1])
        owned.callback(found.close)
        fingerprint = backend.region.header["fingerprint"][0].tobytes()
        claim = Claim(abi.ABI_VERSION, abi.RING_LAYOUT_HASH, fingerprint, None, None, found.address())
        grant = connection.claim(claim)
        found.connect(grant)
        connection.keep(lambda why: None)
        assert (grant.lease, grant.bytes, grant.read_back_needed) == (0, backend.region.n_bytes, False)
        yield found


def test_it_reads_the_ring(backend: MockBackend, initiator: Initiator) -> None:
    constant = abi.Header.fields["control"][1]  # type: ignore[index]
    assert initiator.read(0, constant) == backend.region.header.tobytes()[:constant]


def test_it_submits_and_is_answered(backend: MockBackend, initiator: Initiator) -> None:
    backend.script = echo
    at = backend.geometry.offsets()
    initiator.publish(at["leases"], pair_word(1, 1))
    granted = pair_word(1, LeaseState.GRANTED)
    wait_until(lambda: int.from_bytes(initiator.read(at["lease_acks"], 8), "little") == granted, 120.0)
    prompt = np.arange(20, 31, dtype=np.uint32)
    descriptor = np.zeros((), abi.Descriptor)
    values = {
        "sequence": 1,
        "epoch": 1,
        "prompt_tokens": len(prompt),
        "max_tokens": 9,
        "prompt_room": len(prompt),
        "output_room": 9,
        "top_p": 1.0,
        "repetition_penalty": 1.0,
    }
    for name, value in values.items():
        descriptor[name] = value
    covered = abi.Descriptor.fields["crc32c"][1]  # type: ignore[index]
    descriptor["crc32c"] = crc32c(prompt.tobytes(), crc32c(descriptor.tobytes()[:covered]))
    payloads = [(at["prompts"], prompt.tobytes()), (at["descriptors"], descriptor.tobytes())]
    initiator.submit(payloads, at["requests"], request_word(1, Command.SUBMIT, 1))

    beat = 1

    def completed() -> bool:
        nonlocal beat
        beat += 1
        initiator.publish(at["leases"], pair_word(1, beat))
        return (
            Status.unpack(int.from_bytes(initiator.read(at["progress"], 8), "little")).state
            is State.DECODE_COMPLETED
        )

    wait_until(completed, 120.0)
    records = np.frombuffer(initiator.read(at["outputs"], 9 * 8), "<u8")
    assert (records & 0xFFFFFFFF).tolist() == prompt[:9].tolist()
    assert backend.bad_checksums == 0


def test_nothing_but_the_ring_is_within_reach(backend: MockBackend, initiator: Initiator) -> None:
    """V8."""
    v = initiator.v
    n = backend.region.n_bytes
    assert initiator.post(initiator.request(v.IBV_WR_RDMA_READ, 0, 8, n - 8, v.IBV_SEND_SIGNALED)) == 0
    status = initiator.post(initiator.request(v.IBV_WR_RDMA_READ, 0, 16, n - 8, v.IBV_SEND_SIGNALED))
    assert status == WC_REMOTE_ACCESS


def test_atomics_are_refused(backend: MockBackend, initiator: Initiator) -> None:
    """R1: a word has one writer."""
    v = initiator.v
    wanted = initiator.request(v.IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8, 0, v.IBV_SEND_SIGNALED)
    grant = initiator._grant
    wanted.set_wr_atomic(grant.key, grant.address, 0, 1)  # type: ignore[attr-defined]
    assert initiator.post(wanted) in (WC_REMOTE_ACCESS, WC_REMOTE_INVALID)
    assert int(backend.region.header["magic"][0]) == abi.MAGIC
