"""A request from HTTP to tokens and back over the fabric of tests/verbs, to a ring in the memory of a GPU.

The backend is the emulation but for its ring, which a GPU's device makes and exports; the GPU is fake_cuda.c.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from fabric_sources import needs_headers
from fake_cuda import run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

BACKEND = """
import os
import compilation
sys.path += [str(compilation.ROOT / "tests" / part) for part in ("nic_frontend", "e2e")]
from types import SimpleNamespace
from blink.model_directory import demo_directory
from exchange_thread import KEY, ExchangeThread
from fabric_sources import build_libraries
from gpu_backend import backend as backend_module
from gpu_backend.devices.emulated import EmulatedServingDevice
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.native.builder import NativeEngineBuilder
from gpu_backend.options import BackendOptions
from gpu_backend.rdma.exchange_process import instance, read_header
from gpu_backend.rdma.exchange_server import RingFacts
from gpu_backend.rdma.options import RdmaOptions
from gpu_backend.rdma.target import register_dmabuf

build_libraries().load()

class Device(EmulatedServingDevice):
    def __init__(self):
        super().__init__()
        self.gpu = GpuServingDevice(0, NativeEngineBuilder())
        self.make_ring, self.export_ring = self.gpu.make_ring, self.gpu.export_ring

    def close(self):
        super().close()
        self.gpu.close()

class Exchange:  # in this process, where the fabric is
    def __init__(self, ring, options, memory):
        header = read_header(ring)
        facts = RingFacts(int(header["n_leases"]), header["fingerprint"].tobytes(), instance(ring, header))
        self.target = register_dmabuf(memory, (b"", -1, b""))
        os.close(memory.descriptor)
        self.thread = ExchangeThread(ring, facts, self.target)

    def close(self):
        self.thread.stop()
        self.target.close()

backend_module.select_device = lambda *_: Device()
backend_module.ExchangeProcess = Exchange
ring = Path(sys.argv[1]) / "ring"
rdma = RdmaOptions(host="127.0.0.1", port=0)
options = BackendOptions(demo_directory(), ring=str(ring), transport="cuda_ipc", slots=64, rdma=rdma)
backend = backend_module.Backend(options)
backend.start()
"""

REQUESTS = """
from demo_client import ask, completion, items, right
from harness import Frontend
from nic_frontend.options import VerbsRing
from waiting import wait_until

where = VerbsRing(host="127.0.0.1", port=backend.exchange.thread.port, key=KEY)
frontend = Frontend(SimpleNamespace(path=ring), demo_directory(), ring=where)
assert frontend.service.transport.capabilities.name == "verbs"
chosen = items("add", 24)
replies = ask(frontend.url, [completion(item, stream=True) for item in chosen])
# The scheduler tells what it has done a while after an answer is out.
wait_until(lambda: backend.ring.stats()["completed"] >= 24, what="the scheduler's numbers")
print(sum(right(chosen, replies)), backend.ring.stats()["completed"])
frontend.stop()
assert backend.stop()
assert not ring.exists()
"""


@needs_headers
def test_requests_reach_a_ring_in_gpu_memory_over_rdma(fake: Path, tmp_path: Path) -> None:
    out, log = run(fake, tmp_path, BACKEND + REQUESTS)
    right, served = map(int, out.split())
    assert served == 24
    assert right >= 22  # the demo model is not always right
    kinds = [words[0] for words in log]
    assert kinds.count("export") == 1
    assert kinds.count("free") == kinds.count("alloc")
