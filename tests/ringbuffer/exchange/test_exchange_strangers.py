"""Peers of the exchange that do not know its key, or speak another language: nobody else is harmed."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from exchange_thread import KEY
from limits import WAIT_S
from running_server import CLAIM, ENDPOINT, RunningServer, read_to_end
from waiting import wait_until

from nic_frontend.transport.exchange_client import Exchange
from ringbuffer.rdma import messages, session
from ringbuffer.rdma.session import ExchangeError, Role, Session


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
def test_silent_strangers_keep_nobody_out(
    server: RunningServer, monkeypatch: pytest.MonkeyPatch, n: int
) -> None:
    """V1: nobody has to wait until their time has passed."""
    monkeypatch.setattr("gpu_backend.rdma.exchange_server.HANDSHAKE_S", 2 * WAIT_S)
    with contextlib.ExitStack() as stack:
        strangers = [stack.enter_context(server.raw()) for _ in range(n)]
        wait_until(lambda: len(server.server._strangers) == min(n, 64))
        exchange = Exchange("127.0.0.1", server.port, KEY, timeout_s=WAIT_S)
        assert exchange.claim(CLAIM).lease == 0
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
