"""The CUDA engine at the sizes of real models: a few layers compared with transformers, all of them timed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from native_rig import NativeRig, Reference, make_limits, open_rig, sharpen_routers

from gpu_backend import abi
from gpu_backend.cuda.driver import Device
from gpu_backend.engines.native.weights import RandomWeights
from gpu_backend.models.registry import read_model

pytestmark = pytest.mark.slow

LLAMA3_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192,
    "rope_theta": 500000.0,
}
QWEN3_8B = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
}
PHI_4 = {
    "vocab_size": 100352,
    "hidden_size": 5120,
    "intermediate_size": 17920,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 16384,
    "rope_theta": 250000.0,
    "pad_token_id": 0,
    "eos_token_id": 2,
}
QWEN3_30B_A3B = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000.0,
}
CONFIGS = {
    "llama3-8b": (transformers.LlamaConfig, LLAMA3_8B),
    "qwen3-8b": (transformers.Qwen3Config, QWEN3_8B),
    "phi-4": (transformers.Phi3Config, PHI_4),
    "qwen3-30b-a3b": (transformers.Qwen3MoeConfig, QWEN3_30B_A3B),
}


@pytest.fixture
def device() -> Iterator[Device]:
    device = Device()
    yield device
    device.close()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_two_layers_of_a_real_size(name: str, device: Device, tmp_path: Path) -> None:
    make, sizes = CONFIGS[name]
    torch.manual_seed(2)
    with torch.device("cuda"):
        config = make(**{**sizes, "num_hidden_layers": 2})
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    sharpen_routers(model)
    model.save_pretrained(tmp_path)
    del model
    torch.cuda.empty_cache()
    rig = open_rig(device, tmp_path, make_limits(max_context=2048, max_prefill_tokens=1024, total_pages=1024))
    rng = np.random.default_rng(3)
    lengths = {4: 1000, 1: 333, 2: 17}
    for row, length in lengths.items():
        rig.driver.start(row, rng.integers(0, sizes["vocab_size"], length).tolist())
    rig.prefill([(4, 0, 600)])
    rig.prefill([(4, 600, 1000), (1, 0, 333), (2, 0, 17)])
    for _ in range(5):
        rig.decode([1, 2, 4])
    Reference(tmp_path, torch.bfloat16).check(rig)
    rig.close()


@pytest.mark.parametrize("name", list(CONFIGS))
def test_all_layers_timed(
    name: str, device: Device, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random weights; prints milliseconds by the GPU's clock. Fails only where logits are not finite."""
    make, sizes = CONFIGS[name]
    architecture = make.__name__.replace("Config", "ForCausalLM")
    make(**sizes, architectures=[architecture]).save_pretrained(tmp_path)
    config = read_model(tmp_path)
    limits = make_limits(max_batch=64, max_context=2048, max_prefill_tokens=2048, total_pages=64 * 128)
    rig = NativeRig(device, config, RandomWeights(1), limits)
    rng = np.random.default_rng(4)
    lines = []
    for row in range(64):
        rig.driver.start(row, rng.integers(0, config.vocab_size, 1024).tolist())
        rig.driver.prefill([(row, 0, 1024)])
    lines.append(f"prefill 1024 tokens: {median_ms(rig):.3f} ms")
    for n in (1, 2, 4, 8, 16, 32, 64):
        rig.driver.decode(list(range(n)))
        assert np.isfinite(rig.engine.logits(n)).all()
        lines.append(f"decode batch {n} at 1 k tokens of context: {median_ms(rig):.3f} ms")
    rig.close()
    with capsys.disabled():
        print(f"\n{name} {config.dtype} on {device.name}", *lines, sep="\n  ")


def median_ms(rig: NativeRig, repeats: int = 20) -> float:
    """Of the driver's last step, repeated: from its gate to its completion."""
    index = rig.driver.step_id % abi.STEP_SETS
    address = int(rig.driver.sets[index]["head"])
    shape = int(read_head(rig, address)["shape"])
    times = []
    for _ in range(repeats):
        rig.engine.run(shape, index)
        head = read_head(rig, address)
        times.append((int(head["done_ns"]) - int(head["start_ns"])) / 1e6)
    return float(np.median(times))


def read_head(rig: NativeRig, address: int) -> np.void:
    # type: ignore[no-any-return]
    return np.frombuffer(rig.memory.read(address, abi.StepHead.itemsize), abi.StepHead)[0]
