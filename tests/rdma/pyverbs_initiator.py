"""The frontend's end of a connection in pyverbs: a second implementation, against which the backend's passive
end is held, and the data path in a page. Work requests are built for each post, which pyverbs 44 leaks: a few
hundred bytes each, for tests only.
"""

from __future__ import annotations

import importlib
import itertools
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringbuffer.rdma.messages import EndpointAddress, Grant

DEBIAN_PACKAGES = Path("/usr/lib/python3/dist-packages")  # PyPI has no wheel of pyverbs
GID_INDEX = 1  # 0 is the link-local address
DEPTH, STAGING_BYTES = 64, 1 << 16
FIRST_PACKET = 0x1234
WAIT_S = 60.0


def pyverbs() -> SimpleNamespace:
    """pyverbs' classes and constants; skips where this Python cannot load them."""
    sys.path.append(str(DEBIAN_PACKAGES))
    try:
        names = ("addr", "cq", "device", "enums", "mr", "pd", "qp", "wr")
        modules = [importlib.import_module(f"pyverbs.{name}") for name in names]
    except ImportError as error:
        pytest.skip(f"needs Debian's python3-pyverbs and Debian's own version of Python: {error}")
    finally:
        sys.path.remove(str(DEBIAN_PACKAGES))
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


class Initiator:
    """Two queue pairs, of which it uses the first. Call `connect` once; `read`, `submit` and `post` then."""

    def __init__(self, device: str) -> None:
        self.v = v = pyverbs()
        self._context = v.Context(name=device)
        self._gid = self._context.query_gid(1, GID_INDEX)
        self._domain = v.PD(self._context)
        self._queue = v.CQ(self._context, DEPTH)
        capacity = v.QPCap(
            max_send_wr=DEPTH, max_recv_wr=1, max_send_sge=1, max_recv_sge=1, max_inline_data=8
        )
        self._pairs = [
            v.QP(
                self._domain,
                v.QPInitAttr(
                    qp_type=v.IBV_QPT_RC, scq=self._queue, rcq=self._queue, cap=capacity, sq_sig_all=0
                ),
            )
            for _ in range(2)
        ]
        self._staging = v.MR(self._domain, STAGING_BYTES, v.IBV_ACCESS_LOCAL_WRITE)

    def address(self) -> EndpointAddress:
        numbers = tuple(pair.qp_num for pair in self._pairs)
        raw = bytes.fromhex(str(self._gid).replace(":", "")) if len(str(self._gid)) == 39 else b""
        assert len(raw) == 16, self._gid
        return EndpointAddress(raw, 0, int(self.v.IBV_MTU_1024), 16, numbers, (FIRST_PACKET, FIRST_PACKET))

    def connect(self, grant: Grant) -> None:
        v, peer = self.v, grant.endpoint
        gid = v.GID(":".join(peer.gid.hex()[i : i + 4] for i in range(0, 32, 4)))
        for pair, number, packet in zip(self._pairs, peer.numbers, peer.first_packets, strict=True):
            attributes = v.QPAttr(port_num=1)
            attributes.dest_qp_num, attributes.rq_psn, attributes.sq_psn = number, packet, FIRST_PACKET
            attributes.path_mtu = v.IBV_MTU_1024
            attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 16
            attributes.min_rnr_timer, attributes.timeout = 12, 14
            attributes.retry_cnt = attributes.rnr_retry = 7
            route = v.GlobalRoute(dgid=gid, sgid_index=GID_INDEX)
            attributes.ah_attr = v.AHAttr(port_num=1, is_global=1, gr=route)
            pair.to_rts(attributes)
        self._grant = grant

    def request(self, opcode: int, at: int, n_bytes: int, offset: int, flags: int = 0) -> object:
        """A work request from or to byte `at` of the staging buffer."""
        piece = self.v.SGE(self._staging.buf + at, n_bytes, self._staging.lkey)
        found = self.v.SendWR(opcode=opcode, num_sge=1, sg=[piece], send_flags=flags)
        found.set_wr_rdma(self._grant.key, self._grant.address + offset)
        return found

    def post(self, *requests: object) -> int:
        """Posts a chain whose last request is signalled; the status of its completion."""
        for first, second in itertools.pairwise(requests):
            first.next_wr = second  # type: ignore[attr-defined]
        self._pairs[0].post_send(requests[0])
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            n, found = self._queue.poll()
            if n:
                return int(found[0].status)
        raise AssertionError("no completion")

    def read(self, offset: int, n_bytes: int) -> bytes:
        v = self.v
        assert self.post(self.request(v.IBV_WR_RDMA_READ, 0, n_bytes, offset, v.IBV_SEND_SIGNALED)) == 0
        return bytes(self._staging.read(n_bytes, 0))

    def submit(self, payloads: list[tuple[int, bytes]], word_offset: int, word: int) -> None:
        """One chained post (V3): WRITEs, a READ of the last word, the inline fenced word."""
        v, at, chain = self.v, 0, []
        for offset, data in payloads:
            self._staging.write(data, len(data), at)
            chain.append(self.request(v.IBV_WR_RDMA_WRITE, at, len(data), offset))
            at += -(-len(data) // 8) * 8
        last = payloads[-1][0] + len(payloads[-1][1]) - 8
        chain.append(self.request(v.IBV_WR_RDMA_READ, at, 8, last))
        self._staging.write(word.to_bytes(8, "little"), 8, at + 8)
        flags = v.IBV_SEND_INLINE | v.IBV_SEND_FENCE | v.IBV_SEND_SIGNALED
        chain.append(self.request(v.IBV_WR_RDMA_WRITE, at + 8, 8, word_offset, flags))
        assert self.post(*chain) == 0

    def publish(self, offset: int, word: int) -> None:
        self._staging.write(word.to_bytes(8, "little"), 8, 0)
        flags = self.v.IBV_SEND_INLINE | self.v.IBV_SEND_SIGNALED
        assert self.post(self.request(self.v.IBV_WR_RDMA_WRITE, 0, 8, offset, flags)) == 0

    def close(self) -> None:
        for owned in (*self._pairs, self._staging, self._queue, self._domain, self._context):
            owned.close()
