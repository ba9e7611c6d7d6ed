"""What the two sides of an exchange tell each other, as JSON objects of a fixed form.

frontend  claim     what it was built from, which lease it wants, its queue pairs
backend   grant     the lease, the region's registration, its queue pairs
          refused   why not
frontend  alive     every ALIVE_S, for as long as it wants to keep the lease
"""

from __future__ import annotations

from dataclasses import dataclass

from ringbuffer import abi
from ringbuffer.rdma.abi import RDMA_QUEUE_PAIRS
from ringbuffer.rdma.session import Body, ExchangeError

HANDSHAKE_S = 5.0  # bound on everything until the grant
ALIVE_S = 1.0
SILENCE_S = 10.0  # a frontend that says nothing for this long has lost its queue pairs and its lease (V5)
ALIVE: Body = {"type": "alive"}


@dataclass(frozen=True)
class EndpointAddress:
    """Where one side's queue pairs are: struct blink_rdma_address of endpoint.h."""

    gid: bytes  # 16
    lid: int
    mtu: int  # enum ibv_mtu
    reads: int  # RDMA READs that may be under way at once
    numbers: tuple[int, ...]  # of the queue pairs
    first_packets: tuple[int, ...]  # their first packet sequence numbers

    def body(self) -> Body:
        return {
            "gid": self.gid.hex(),
            "lid": self.lid,
            "mtu": self.mtu,
            "reads": self.reads,
            "numbers": list(self.numbers),
            "first_packets": list(self.first_packets),
        }

    @classmethod
    def parse(cls, body: Body) -> EndpointAddress:
        return cls(
            _bytes(body, "gid", 16),
            _integer(body, "lid", 16),
            _integer(body, "mtu", 3),
            _integer(body, "reads", 8),
            _integers(body, "numbers", RDMA_QUEUE_PAIRS, 24),
            _integers(body, "first_packets", RDMA_QUEUE_PAIRS, 24),
        )


@dataclass(frozen=True)
class Claim:
    """`lease` and `token` are those of an earlier grant, or None: any lease will do."""

    abi_version: int
    layout_hash: int
    fingerprint: bytes  # ringbuffer.region.model_fingerprint
    lease: int | None
    token: str | None
    endpoint: EndpointAddress

    def body(self) -> Body:
        return {
            "type": "claim",
            "abi_version": self.abi_version,
            "layout_hash": f"{self.layout_hash:016x}",
            "fingerprint": self.fingerprint.hex(),
            "lease": self.lease,
            "token": self.token,
            "endpoint": self.endpoint.body(),
        }

    @classmethod
    def parse(cls, body: Body) -> Claim:
        """Raises ExchangeError for anything but a claim."""
        _expect(body, "claim")
        return cls(
            _integer(body, "abi_version", 32),
            int.from_bytes(_bytes(body, "layout_hash", 8), "big"),
            _bytes(body, "fingerprint", 32),
            None if body.get("lease") is None else _integer(body, "lease", 16),
            None if body.get("token") is None else _string(body, "token"),
            EndpointAddress.parse(_object(body, "endpoint")),
        )


@dataclass(frozen=True)
class Grant:
    """`instance` names the region: it differs when the backend was started again. `address` and `bytes` are
    the region's as the remote key `key` knows them. `read_back_needed` says that the region's device does not
    order remote writes by itself (V3).
    """

    lease: int
    token: str
    instance: str
    address: int
    bytes: int
    key: int
    read_back_needed: bool
    endpoint: EndpointAddress

    def body(self) -> Body:
        return {
            "type": "grant",
            "lease": self.lease,
            "token": self.token,
            "instance": self.instance,
            "address": self.address,
            "bytes": self.bytes,
            "key": self.key,
            "read_back_needed": self.read_back_needed,
            "endpoint": self.endpoint.body(),
        }

    @classmethod
    def parse(cls, body: Body) -> Grant:
        """Raises ExchangeError for anything but a grant; a refusal's reason becomes the message."""
        if body.get("type") == "refused":
            raise ExchangeError(f"the backend refused: {_string(body, 'reason')}")
        _expect(body, "grant")
        return cls(
            _integer(body, "lease", 16),
            _string(body, "token"),
            _string(body, "instance"),
            _integer(body, "address", 64),
            _integer(body, "bytes", 64),
            _integer(body, "key", 32),
            body.get("read_back_needed") is not False,
            EndpointAddress.parse(_object(body, "endpoint")),
        )


def refused(reason: str) -> Body:
    return {"type": "refused", "reason": reason}


def why_refused(claim: Claim, fingerprint: bytes) -> str | None:
    """Why a frontend must not attach to this build's ring of the model `fingerprint`; None when it may."""
    if (claim.abi_version, claim.layout_hash) != (abi.ABI_VERSION, abi.RING_LAYOUT_HASH):
        return (
            f"the frontend has ring layout {claim.layout_hash:016x} (ABI {claim.abi_version}), the backend "
            f"{abi.RING_LAYOUT_HASH:016x} (ABI {abi.ABI_VERSION}): run the same version of blink "
            "on both sides"
        )
    if claim.fingerprint != fingerprint:
        return "the frontend has another model than the backend serves: config.json or tokenizer.json differ"
    return None


def _expect(body: Body, kind: str) -> None:
    if body.get("type") != kind:
        raise ExchangeError(f"the other side sent '{body.get('type')}' where a {kind} was due")


def _string(body: Body, name: str) -> str:
    value = body.get(name)
    if not isinstance(value, str):
        raise _malformed(name)
    return value


def _bytes(body: Body, name: str, size: int) -> bytes:
    try:
        value = bytes.fromhex(_string(body, name))
    except ValueError:
        raise _malformed(name) from None
    if len(value) != size:
        raise _malformed(name)
    return value


def _integer(body: Body, name: str, bits: int) -> int:
    value = body.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise _malformed(name)
    return value


def _integers(body: Body, name: str, n: int, bits: int) -> tuple[int, ...]:
    values = body.get(name)
    if not isinstance(values, list) or len(values) != n:
        raise _malformed(name)
    return tuple(_integer({name: value}, name, bits) for value in values)


def _object(body: Body, name: str) -> Body:
    value = body.get(name)
    if not isinstance(value, dict):
        raise _malformed(name)
    return value


def _malformed(name: str) -> ExchangeError:
    return ExchangeError(f"the other side sent a malformed '{name}'")
