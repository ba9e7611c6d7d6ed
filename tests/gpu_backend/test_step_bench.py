"""What scripts/bench/engine.py times, against a driver that logs and runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from fake_cuda import op, run

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: pip install 'blink-serving[gpu]'")

SCRIPT = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import engine
from gpu_backend.engine.base import Limits
from gpu_backend.model.config import ModelConfig

engine.read_tb_s = engine.matrix_tflops = lambda device, stream: 1.0
bench = engine.Bench(ModelConfig.from_directory(Path(sys.argv[1])), Limits(4, 256, 64, 4, 16, 64))
step = bench.engine._step
print(step._kv_cache, step._layer_bytes * bench.config.n_layers)  # keys and values, 2 bytes each
bench.close()
"""


def test_the_cache_holds_random_numbers_before_anything_is_timed(fake: Path, tmp_path: Path) -> None:
    printed, log = run(fake, tmp_path, SCRIPT, small_models.DENSE)
    last = [call for call in log if call[0] == "launch"][-1]
    assert op(last) == "random"
    address, n = (int.from_bytes(bytes.fromhex(argument), "little") for argument in last[7:9])
    assert [address, n] == [int(word) for word in printed.split()]
