"""A script that makes the TensorRT engine of a small model and runs a step, for the fakes of driver and
library; and what their log must say at its end."""

from __future__ import annotations

from fake_cuda import Log

SCRIPT = """
from contextlib import closing
import fake_tensorrt
sys.modules["tensorrt" if "full" in LIBRARY else "tensorrt_rtx"] = fake_tensorrt
if "full" not in LIBRARY:
    sys.modules["tensorrt"] = None
from gpu_backend.cuda import cache
from gpu_backend.engines.tensorrt import compiled, plans
compiled.cache_directory = plans.cache_directory = lambda: Path(sys.argv[1]) / "cache"
from gpu_backend.cuda.driver import CudaError
from gpu_backend.devices.gpu import GpuServingDevice
from gpu_backend.engines.base import EngineError, Limits
from gpu_backend.engines.tensorrt.builder import TensorRtEngineBuilder
from gpu_backend.models.quantization import ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import read_model
from gpu_backend.weights.safetensors import CheckpointError

def serve(config):
    # As a backend does: where something fails, the device is closed while the error is on its way.
    try:
        with closing(GpuServingDevice(0, TensorRtEngineBuilder())) as device:
            wanted = Limits(20, 512, 100, 4, page_size=16, total_pages=0, mixed_share=64)
            limits = device.limits(config, wanted, KV_MEMORY)
            engine = device.build_engine(config, Path(sys.argv[1]), limits, RANDOM, None)
            assert engine.executables.shape == (len(device._grid.shapes), 3)
            assert len(set(engine.executables.ravel().tolist())) == engine.executables.size
            engine.run(2, 1)
            assert engine.logits(2).shape == (2, 1001)
            engine.close()
    except (CheckpointError, CudaError, EngineError, ValueError) as error:
        print(error)

config = read_model(Path(sys.argv[1]))
RANDOM, KV_MEMORY = True, 8 << 20
"""


def script(library: str, change: str = "") -> str:
    return f"LIBRARY = {library!r}\n{SCRIPT}{change}\nserve(config)\n"


def objects_that_ended(log: Log) -> int:
    """All of TensorRT's that were made ended while the GPU's context was there. Returns how many builders."""
    lines = [" ".join(call) for call in log if call[:2] != ["release", "context"]]
    assert log.index(["release", "context", "0"]) == len(lines), "nothing comes behind it"
    for kind in ("builder", "engine", "execution", "kernels"):
        assert lines.count(f"create {kind}") == lines.count(f"destroy {kind}")
    return lines.count("create builder")
