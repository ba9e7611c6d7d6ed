"""A script that makes the CUDA engine of a small model and runs a step, for the fake driver."""

from __future__ import annotations

import small_models

CONFIG = small_models.DENSE
EXPERTS = {**small_models.EXPERTS, "num_attention_heads": 8, "mlp_only_layers": [1]}
SCRIPT = """
from engine_driver import EngineDriver
from gpu_backend.cuda.driver import Device
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.engines.base import Limits
from gpu_backend.engines.native.engine import NativeEngine
from gpu_backend.engines.native.sizing import weight_bytes
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model

device = Device()
config = read_model(Path(sys.argv[1]))
limits = Limits(
    max_batch=20, max_context=512, max_prefill_tokens=100, max_prefill_slots=4, page_size=16, total_pages=64
)
memory = DeviceMemory(device)
driver = EngineDriver(memory, limits, config.vocab_size)
done = []
engine = NativeEngine(
    device, config, RandomWeights(1), limits, driver.grid.shapes, driver.batch, lambda *at: done.append(at)
)
assert engine.executables.shape == (len(driver.grid.shapes), 3)
assert len(set(engine.executables.ravel().tolist())) == engine.executables.size
total = weight_bytes(config)
weights = [at for at in done if at[0] == "weights"]
assert weights[0] == ("weights", 0, total)
assert weights[-1] == ("weights", total, total)
assert weights == sorted(weights)
assert done[-1] == ("graphs", engine.executables.size, engine.executables.size)
engine.run(2, 1)
assert engine.logits(2).shape == (2, 1001)
engine.close()
memory.close()
device.close()
"""
