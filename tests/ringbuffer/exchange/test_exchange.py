"""The exchange over plain sockets, both real sides of it. No RDMA device is needed."""

from __future__ import annotations

import dataclasses
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from exchange_thread import KEY
from running_server import CLAIM, ENDPOINT, RunningServer
from waiting import wait_until

from nic_frontend.transport.exchange_client import Exchange
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.rdma import exchange_key
from ringbuffer.rdma.messages import Claim, Grant
from ringbuffer.rdma.session import ExchangeError


def test_a_claim_is_granted(server: RunningServer) -> None:
    exchange = server.connect()
    grant = exchange.claim(CLAIM)
    assert (grant.lease, grant.instance, grant.key, grant.bytes) == (0, "instance-1", 77, 1 << 20)
    assert (grant.address, grant.read_back_needed) == (0x7F0000000000, False)
    assert grant.endpoint.numbers == (117, 118)
    exchange.close()


def test_leases_are_held_by_connections_and_shared_with_local_frontends(
    server: RunningServer, ring: Path
) -> None:
    """F1, V5."""
    local = LeaseLock(ring)
    assert local.claim(2) == 0
    first = server.connect()
    assert first.claim(CLAIM).lease == 1
    with pytest.raises(ExchangeError, match=r"refused: all 2 lease\(s\) of the ring are held"):
        server.connect().claim(CLAIM)
    first.close()
    wait_until(lambda: server.target.log == ["open", "close"])
    wait_until(lambda: local.claim_index(1))
    local.close()
    again = server.connect()
    assert again.claim(CLAIM).lease == 0
    again.close()


def test_a_frontend_that_comes_back_takes_its_lease_over(server: RunningServer) -> None:
    """V4: the old connection's queue pairs are gone before the new one's are made."""
    first = server.connect()
    grant = first.claim(CLAIM)
    ended: list[str] = []
    first.keep(ended.append)
    back = server.connect()
    again = back.claim(dataclasses.replace(CLAIM, lease=grant.lease, token=grant.token))
    assert again.lease == grant.lease
    assert again.token != grant.token
    assert server.target.log == ["open", "close", "open"]
    wait_until(lambda: ended)
    for exchange in (first, back):
        exchange.close()


@pytest.mark.parametrize("token", [None, "guessed"])
def test_nobody_else_takes_it_over(server: RunningServer, token: str | None) -> None:
    first = server.connect()
    lease = first.claim(CLAIM).lease
    with pytest.raises(ExchangeError, match=f"lease {lease} is held by another frontend"):
        server.connect().claim(dataclasses.replace(CLAIM, lease=lease, token=token))
    first.close()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layout_hash": 5}, "has ring layout 0000000000000005 .* run the same version of blink"),
        ({"abi_version": 9}, r"\(ABI 9\), the backend .* run the same version of blink"),
        ({"fingerprint": bytes(32)}, "has another model than the backend serves"),
        ({"lease": 2}, "lease 2 is held"),
    ],
)
def test_what_does_not_fit_is_refused_on_both_sides(
    server: RunningServer, caplog: pytest.LogCaptureFixture, change: dict[str, object], message: str
) -> None:
    with pytest.raises(ExchangeError, match=f"the backend refused: .*{message}"):
        server.connect().claim(dataclasses.replace(CLAIM, **change))  # type: ignore[arg-type]
    wait_until(lambda: caplog.records)
    assert server.target.log == []
    caplog.records[0].getMessage().index("frontend 127.0.0.1: ")


def test_an_unreachable_frontend_is_told(server: RunningServer) -> None:
    server.target.unreachable = True
    with pytest.raises(ExchangeError, match="cannot reach the frontend's queue pairs: no route"):
        server.connect().claim(CLAIM)
    server.target.unreachable = False
    exchange = server.connect()
    assert exchange.claim(CLAIM).lease == 0  # the refused claim left nothing locked
    exchange.close()


def test_a_backend_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        exchange = Exchange("127.0.0.1", deaf.getsockname()[1], KEY, timeout_s=0.2)
        with pytest.raises(ExchangeError, match="does not answer"):
            exchange.claim(CLAIM)
        exchange.close()


def test_a_silent_frontend_loses_its_lease(start: Callable[..., RunningServer]) -> None:
    """V5: as a frontend that is frozen, whose kernel still acknowledges everything."""
    server = start(n_leases=1, silence_s=2.0)
    frozen = server.connect()
    assert frozen.claim(CLAIM).lease == 0
    wait_until(lambda: server.target.log == ["open", "close"])
    again = server.connect()
    assert again.claim(CLAIM).lease == 0
    assert server.target.log[:3] == ["open", "close", "open"]
    for exchange in (frozen, again):
        exchange.close()


def test_a_frontend_that_speaks_up_keeps_its_lease(
    start: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V5: for longer than a silent one has it, which is so long that a busy machine makes nobody silent."""
    monkeypatch.setattr("nic_frontend.transport.exchange_client.ALIVE_S", 0.1)
    server = start(n_leases=1, silence_s=6.0)
    lively = server.connect()
    assert lively.claim(CLAIM).lease == 0
    ended: list[str] = []
    lively.keep(ended.append)
    time.sleep(7.0)
    assert server.target.log == ["open"]
    assert not ended
    server.stop()
    wait_until(lambda: ended)
    assert "is gone: it closed the connection" in ended[0]
    lively.close()


def test_a_grant_survives_its_encoding() -> None:
    grant = Grant(3, "token", "instance", (1 << 64) - 1, 1 << 40, (1 << 32) - 1, True, ENDPOINT)
    assert Grant.parse(grant.body()) == grant
    assert Claim.parse(CLAIM.body()) == CLAIM


def test_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    assert exchange_key.ring_key(file) == KEY
    monkeypatch.setenv(exchange_key.VARIABLE, "x" * 20)
    assert exchange_key.ring_key(None) == b"x" * 20
    monkeypatch.setenv(exchange_key.VARIABLE, "short")
    with pytest.raises(ValueError, match="has 5 bytes, it must have at least 16"):
        exchange_key.ring_key(None)
    monkeypatch.delenv(exchange_key.VARIABLE)
    with pytest.raises(ValueError, match="make one with `openssl rand -hex 32`"):
        exchange_key.ring_key(None)
