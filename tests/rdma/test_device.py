"""What the transport rests on, with pyverbs alone: reliable connections that write and read remote memory."""

import importlib
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

DEBIAN_PACKAGES = "/usr/lib/python3/dist-packages"  # of python3-pyverbs, which pip does not have built
GID_INDEX = 1  # 0 is the link-local address
LENGTH = 64 * 1024
WAIT_SECONDS = 20


@pytest.fixture(scope="module")
def devices() -> tuple[str, str]:
    """Two devices on one network."""
    names = ("rxe0", "rxe1")
    if not all(Path("/sys/class/infiniband", name).exists() for name in names):
        pytest.skip("needs the RDMA devices of scripts/soft-roce, rxe0 and rxe1")
    return names


@pytest.fixture(scope="module")
def verbs(devices) -> SimpleNamespace:
    """pyverbs' classes and constants; skips where this Python cannot load them."""
    sys.path.append(DEBIAN_PACKAGES)
    try:
        names = ["addr", "cq", "device", "enums", "mr", "pd", "qp", "wr"]
        modules = [importlib.import_module(f"pyverbs.{name}") for name in names]
    except ImportError as error:
        pytest.skip(f"needs Debian's python3-pyverbs, built for Debian's own Python: {error}")
    finally:
        sys.path.remove(DEBIAN_PACKAGES)
    return SimpleNamespace(**{name: value for module in modules for name, value in vars(module).items()})


class Endpoint:
    """A queue pair on one device, with one region that the other side may write and read."""

    def __init__(self, verbs: SimpleNamespace, device: str, stack: ExitStack) -> None:
        def owned(resource):
            stack.callback(resource.close)  # in reverse order: a queue pair goes before its queue
            return resource

        self.verbs = verbs
        context = owned(verbs.Context(name=device))
        self.gid = context.query_gid(1, GID_INDEX)
        domain = owned(verbs.PD(context))
        self.queue = owned(verbs.CQ(context, 16))
        self.access = (
            verbs.IBV_ACCESS_LOCAL_WRITE | verbs.IBV_ACCESS_REMOTE_WRITE | verbs.IBV_ACCESS_REMOTE_READ
        )
        self.region = owned(verbs.MR(domain, LENGTH, self.access))
        capacity = verbs.QPCap(max_send_wr=16, max_recv_wr=1, max_send_sge=1, max_recv_sge=1)
        attributes = verbs.QPInitAttr(
            qp_type=verbs.IBV_QPT_RC, scq=self.queue, rcq=self.queue, cap=capacity, sq_sig_all=1
        )
        self.pair = owned(verbs.QP(domain, attributes))

    def connect(self, other: "Endpoint") -> None:
        attributes = self.verbs.QPAttr(port_num=1)
        attributes.qp_access_flags = self.access
        attributes.dest_qp_num = other.pair.qp_num
        attributes.path_mtu = self.verbs.IBV_MTU_1024
        attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
        attributes.min_rnr_timer, attributes.timeout = 12, 14
        attributes.retry_cnt = attributes.rnr_retry = 7
        route = self.verbs.GlobalRoute(dgid=other.gid, sgid_index=GID_INDEX)
        attributes.ah_attr = self.verbs.AHAttr(port_num=1, is_global=1, gr=route)
        self.pair.to_rts(attributes)

    def complete(self, opcode: int, length: int, address: int, key: int) -> int:
        """Moves `length` bytes between this region's start and `address`; returns the completion's status."""
        buffer = self.verbs.SGE(self.region.buf, length, self.region.lkey)
        request = self.verbs.SendWR(opcode=opcode, num_sge=1, sg=[buffer])
        request.set_wr_rdma(key, address)
        self.pair.post_send(request)
        return wait_for(self.queue).status


def wait_for(queue):
    """The queue's next completion; fails after WAIT_SECONDS."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        count, completions = queue.poll(1)
        if count:
            return completions[0]
    pytest.fail(f"no completion within {WAIT_SECONDS} s")


@pytest.fixture(params=["one device", "two devices"])
def pair(request: pytest.FixtureRequest, verbs, devices) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two connected endpoints: on one device, where packets never leave it, and on two, across a wire."""
    with ExitStack() as stack:
        near = Endpoint(verbs, devices[0], stack)
        far = Endpoint(verbs, devices[0 if request.param == "one device" else 1], stack)
        near.connect(far)
        far.connect(near)
        yield near, far


def pattern(seed: int) -> bytes:
    return bytes((seed + 31 * index + index // 251) % 256 for index in range(LENGTH))


def test_a_write_lands_in_the_other_sides_memory(pair, verbs):
    near, far = pair
    near.region.write(pattern(1), LENGTH)
    assert (
        near.complete(verbs.IBV_WR_RDMA_WRITE, LENGTH, far.region.buf, far.region.rkey)
        == verbs.IBV_WC_SUCCESS
    )
    assert far.region.read(LENGTH, 0) == pattern(1)


def test_a_read_fetches_the_other_sides_memory(pair, verbs):
    near, far = pair
    far.region.write(pattern(2), LENGTH)
    assert (
        near.complete(verbs.IBV_WR_RDMA_READ, LENGTH, far.region.buf, far.region.rkey) == verbs.IBV_WC_SUCCESS
    )
    assert near.region.read(LENGTH, 0) == pattern(2)


def test_a_write_with_a_wrong_key_is_refused_and_changes_nothing(pair, verbs):
    near, far = pair
    far.region.write(pattern(3), LENGTH)
    near.region.write(pattern(4), LENGTH)
    status = near.complete(verbs.IBV_WR_RDMA_WRITE, LENGTH, far.region.buf, far.region.rkey ^ 0xFF)
    assert status == verbs.IBV_WC_REM_ACCESS_ERR
    assert far.region.read(LENGTH, 0) == pattern(3)


def test_a_write_beyond_the_region_is_refused(pair, verbs):
    near, far = pair
    status = near.complete(verbs.IBV_WR_RDMA_WRITE, LENGTH, far.region.buf + 8, far.region.rkey)
    assert status == verbs.IBV_WC_REM_ACCESS_ERR
