"""Random weights of a model's shape: what is filled in, and that a router tells tokens apart by them."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import small_models
import torch
from fake_cuda import op, run
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")

from gpu_backend.engines.native.weights import RANDOM_OUTPUT_STD, RANDOM_STD

LOAD = """
from gpu_backend.cuda.driver import Device, Stream
from gpu_backend.cuda.memory import DeviceMemory
from gpu_backend.element import Element
from gpu_backend.engines.native.kernels import Kernels
from gpu_backend.engines.native.weights import RandomWeights, WeightLoader, loading_kernels
from gpu_backend.models.description import Model
from gpu_backend.models.registry import read_model

device, stream = Device(), Stream()
config, memory = read_model(Path(sys.argv[1])), DeviceMemory(device)
source = RandomWeights(1)
kernels = Kernels(device.arch, loading_kernels(config, source), Element.BF16)
WeightLoader(memory, stream, kernels, config, 512, source, lambda *progress: None).load()
kernels.close()
memory.close()
"""


def test_what_attention_puts_out_is_small(fake: Path, tmp_path: Path) -> None:
    """Norms are 1, everything else random, and no two weights by the same seed."""
    _, log = run(fake, tmp_path, LOAD, small_models.EXPERTS)
    filled = Counter[tuple[int, float, float]]()
    seeds = set()
    for call in log:
        if op(call) == "random":
            _, n, seed, mean, std = map(bytes.fromhex, call[7:12])
            filled[int.from_bytes(n, "little"), *struct.unpack("<2f", mean + std)] += 1
            seeds.add(seed)
    hidden, heads, layers = 512, 6 * 64, 3
    small, usual = np.float32(RANDOM_OUTPUT_STD), np.float32(RANDOM_STD)
    assert filled[hidden * heads, 0, small] == layers
    assert filled[hidden * (heads + 2 * 2 * 64), 0, usual] == layers
    assert filled[8 * hidden * 64, 0, usual] == layers
    assert filled[hidden, 1, 0] == 2 * layers + 1
    assert {std for _, _, std in filled} == {0, small, usual}
    assert filled.total() == len(seeds)


def routing(output_std: float) -> tuple[float, float]:
    """Of 256 tokens of a prompt that choose 4 of 32 experts: the least share of the experts that any chooses
    in a layer, and the largest share of the tokens that agree on one."""
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=1000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2,
        head_dim=64, num_experts=32, num_experts_per_tok=4, moe_intermediate_size=192,
    )  # fmt: skip
    model = Qwen3MoeForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, output_std if "o_proj" in name else RANDOM_STD)
        routers = model(torch.randint(0, 1000, (1, 256)), output_router_logits=True).router_logits
    chosen = [np.bincount(logits.topk(4).indices.flatten(), minlength=32) for logits in routers]
    return min(float((n > 0).mean()) for n in chosen), max(float(n.max()) / 256 for n in chosen)


def test_a_prompt_goes_to_most_experts() -> None:
    experts, agreeing = routing(RANDOM_OUTPUT_STD)
    assert experts > 0.9
    assert agreeing < 0.7


@pytest.mark.slow
def test_with_all_weights_alike_a_prompt_would_go_to_few() -> None:
    """Why attention's output is not as large as the other weights."""
    experts, agreeing = routing(RANDOM_STD)
    assert experts < 0.5
    assert agreeing > 0.9
