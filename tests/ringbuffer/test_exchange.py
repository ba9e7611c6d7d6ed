"""The exchange over plain sockets: both real sides, and a peer that misbehaves. No RDMA device is needed."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from exchange_thread import KEY, ExchangeThread
from limits import WAIT_S
from waiting import wait_until

from gpu_backend.rdma.exchange_server import RingFacts
from nic_frontend.transport.exchange_client import Exchange
from ringbuffer import abi
from ringbuffer.lease_lock import LeaseLock
from ringbuffer.rdma import exchange_key, messages, session
from ringbuffer.rdma.messages import Claim, EndpointAddress, Grant
from ringbuffer.rdma.session import ExchangeError, Role, Session

FINGERPRINT = bytes(range(32))
ENDPOINT = EndpointAddress(bytes(16), 0, 3, 16, (17, 18), (5, 6))
CLAIM = Claim(abi.ABI_VERSION, abi.RING_LAYOUT_HASH, FINGERPRINT, None, None, ENDPOINT)


class Pairs:
    def __init__(self, log: list[str], peer: EndpointAddress) -> None:
        self._log = log
        self.address = dataclasses.replace(ENDPOINT, numbers=(peer.numbers[0] + 100, peer.numbers[1] + 100))
        log.append("open")

    def close(self) -> None:
        self._log.append("close")


class FakeTarget:
    """A registered region without a device."""

    address, bytes, key, read_back_needed = 0x7F0000000000, 1 << 20, 77, False

    def __init__(self) -> None:
        self.log: list[str] = []
        self.unreachable = False

    def accept(self, peer: EndpointAddress) -> Pairs:
        if self.unreachable:
            raise OSError("no route")
        return Pairs(self.log, peer)


class RunningServer(ExchangeThread):
    def __init__(self, ring: Path, n_leases: int, silence_s: float) -> None:
        self.target = FakeTarget()
        facts = RingFacts(n_leases, FINGERPRINT, "instance-1")
        super().__init__(ring, facts, self.target, silence_s=silence_s)

    def connect(self, key: bytes = KEY) -> Exchange:
        return Exchange("127.0.0.1", self.port, key)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT_S)


@pytest.fixture
def ring(tmp_path: Path) -> Path:
    path = tmp_path / "ring"
    path.write_bytes(bytes(64))
    path.chmod(0o600)
    return path


@pytest.fixture
def start(ring: Path) -> Iterator[Callable[..., RunningServer]]:
    started: list[RunningServer] = []

    def start(n_leases: int = 2, silence_s: float = messages.SILENCE_S) -> RunningServer:
        started.append(RunningServer(ring, n_leases, silence_s))
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(start: Callable[..., RunningServer]) -> RunningServer:
    return start()


@pytest.fixture(autouse=True)
def _all_logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="gpu_backend.rdma.exchange_server")


def read_to_end(stream: socket.socket) -> bytes:
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := stream.recv(4096):
            found += part
    return found


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


def test_a_wrong_key_is_refused_on_both_sides(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ExchangeError, match=r"backend at 127.0.0.1:\d+ has another key"):
        server.connect(b"another key, as long").claim(CLAIM)
    wait_until(lambda: "does not prove that it knows the ring's key" in caplog.text)
    assert server.target.log == []


def test_another_version_is_refused_on_both_sides(
    server: RunningServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server.raw() as stream:
        stream.sendall(session.OPENING.pack(session.MAGIC, session.VERSION + 1, bytes(32)))
        seen = read_to_end(stream)
    wait_until(lambda: f"speaks version {session.VERSION + 1} of the exchange" in caplog.text)
    other = Session(KEY, Role.FRONTEND)
    monkeypatch.setattr(session, "VERSION", session.VERSION + 1)
    with pytest.raises(ExchangeError, match=r"the backend speaks version 2 .*, this frontend version 3"):
        other.begin(seen)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (b"GET / HTTP/1.1\r\nhost: somewhere\r\n\r\n" + bytes(64), "not a blink frontend"),
        (session.MAGIC, "it has left"),
        (
            session.OPENING.pack(session.MAGIC, session.VERSION, bytes(32))
            + session.FRAME.pack(1 << 30, bytes(32)),
            "a frame of 1073741824 bytes, 4096 is the limit",
        ),
        (
            session.OPENING.pack(session.MAGIC, session.VERSION, bytes(32))
            + session.FRAME.pack(2, bytes(32))
            + b"{}",
            "does not prove",
        ),
    ],
    ids=["http", "truncated", "oversized", "unsealed"],
)
def test_garbage_harms_nobody(
    server: RunningServer, caplog: pytest.LogCaptureFixture, sent: bytes, message: str
) -> None:
    with server.raw() as stream:
        stream.sendall(sent)
        stream.shutdown(socket.SHUT_WR)
        read_to_end(stream)
    wait_until(lambda: message in caplog.text)
    exchange = server.connect()
    assert exchange.claim(CLAIM).lease == 0
    exchange.close()


@pytest.mark.parametrize(
    "body",
    [
        {},
        {**CLAIM.body(), "fingerprint": "zz"},
        {**CLAIM.body(), "lease": -1},
        {**CLAIM.body(), "lease": True},
        {**CLAIM.body(), "endpoint": []},
        {**CLAIM.body(), "endpoint": {**ENDPOINT.body(), "numbers": [1]}},
        {**CLAIM.body(), "endpoint": {**ENDPOINT.body(), "numbers": [1, 1 << 24]}},
    ],
)
def test_a_malformed_claim_is_refused(server: RunningServer, body: session.Body) -> None:
    with server.raw() as stream:
        mine = Session(KEY, Role.FRONTEND)
        stream.sendall(mine.opening())
        mine.begin(stream.recv(session.OPENING.size, socket.MSG_WAITALL))
        stream.sendall(mine.seal(body))
        length, code = session.frame_size(stream.recv(session.FRAME.size, socket.MSG_WAITALL))
        answer = mine.unseal(code, stream.recv(length, socket.MSG_WAITALL))
    assert answer == messages.refused("the claim is not valid")
    assert server.target.log == []


@pytest.mark.parametrize("n", [64, 100])
def test_silent_strangers_keep_nobody_out(server: RunningServer, n: int) -> None:
    """V1."""
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(server.raw()) for _ in range(n)]
        wait_until(lambda: len(server.server._strangers) == min(n, 64))
        began = time.monotonic()
        exchange = server.connect()
        assert exchange.claim(CLAIM).lease == 0
        assert time.monotonic() - began < messages.HANDSHAKE_S / 2
        exchange.close()
        for stranger in strangers[: n - 63]:
            read_to_end(stranger)
    wait_until(lambda: not server.server._strangers)


@pytest.mark.parametrize("too_long", [False, True])
def test_nothing_to_try_keys_against_is_sent_to_who_does_not_prove_the_key(
    server: RunningServer, too_long: bool
) -> None:
    """V1: whatever is wrong first."""
    with server.raw() as stream:
        guessing = Session(b"another key, as long", Role.FRONTEND)
        stream.sendall(guessing.opening())
        opening = stream.recv(session.OPENING.size, socket.MSG_WAITALL)
        guessing.begin(opening)
        frame = guessing.seal(CLAIM.body())
        stream.sendall(session.FRAME.pack(1 << 31, bytes(32)) if too_long else frame)
        seen = read_to_end(stream)
    _, code = session.frame_size(seen[: session.FRAME.size])
    assert code == bytes(32)


def test_a_frame_cannot_be_replayed_or_reflected() -> None:
    """V1."""
    frontend, backend = Session(KEY, Role.FRONTEND), Session(KEY, Role.BACKEND)
    frontend.begin(backend.opening())
    backend.begin(frontend.opening())
    frame = frontend.seal({"n": 1})
    _, code = session.frame_size(frame[: session.FRAME.size])
    raw = frame[session.FRAME.size :]
    for unseal in (frontend.unseal, Session(KEY, Role.BACKEND).unseal):
        with pytest.raises(session.WrongKey):
            unseal(code, raw)
    assert backend.unseal(code, raw) == {"n": 1}
    with pytest.raises(session.WrongKey):
        backend.unseal(code, raw)


@pytest.mark.alone
def test_a_slow_stranger_is_dropped_and_holds_nobody_up(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gpu_backend.rdma.exchange_server.HANDSHAKE_S", 0.5)
    with server.raw() as stream:
        stream.sendall(session.MAGIC)
        exchange = server.connect()
        assert exchange.claim(CLAIM).lease == 0
        exchange.close()
        began = time.monotonic()
        read_to_end(stream)
        assert time.monotonic() - began < 5.0
    wait_until(lambda: "it has said nothing for too long" in caplog.text)


def test_a_backend_that_does_not_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        exchange = Exchange("127.0.0.1", deaf.getsockname()[1], KEY, timeout_s=0.2)
        with pytest.raises(ExchangeError, match="does not answer"):
            exchange.claim(CLAIM)
        exchange.close()


def test_a_silent_frontend_loses_its_lease(
    start: Callable[..., RunningServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """V5: as a frontend that is frozen, whose kernel still acknowledges everything."""
    monkeypatch.setattr("nic_frontend.transport.exchange_client.ALIVE_S", 0.1)
    server = start(n_leases=1, silence_s=1.0)
    frozen = server.connect()
    assert frozen.claim(CLAIM).lease == 0
    wait_until(lambda: server.target.log == ["open", "close"])
    lively = server.connect()
    assert lively.claim(CLAIM).lease == 0
    ended: list[str] = []
    lively.keep(ended.append)
    time.sleep(2.0)
    assert server.target.log == ["open", "close", "open"]
    assert not ended
    server.stop()
    wait_until(lambda: ended)
    assert "is gone: it closed the connection" in ended[0]
    for exchange in (frozen, lively):
        exchange.close()


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
