"""The random weights that vLLM is measured with, behind a loader that fills weights as vLLM 0.26's does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from bench.servers import VLLM_PLUGIN
from limits import PROGRAM_S

pytest.importorskip("torch", reason="needs torch: scripts/setup bench")
pytestmark = pytest.mark.slow  # torch takes seconds to import

LOADER = """
import torch


def initialize_single_dummy_weight(tensor, low=-1e-3, high=1e-3, seed=1234):
    raise AssertionError("vLLM's own weights")


def initialize_dummy_weights(module, config):
    raise AssertionError("vLLM's own weights")


class DummyModelLoader:
    def load_weights(self, model, config):
        for layer in model.modules():
            if isinstance(layer, torch.nn.Linear):
                self._process_online_quant_layer(layer, None)
            else:
                initialize_dummy_weights(layer, config)

    def _process_online_quant_layer(self, layer, info):
        for tensor in {**layer._parameters, **layer._buffers}.values():
            if tensor is not None:
                initialize_single_dummy_weight(tensor)
"""
PROGRAM = """
import json
from importlib.metadata import entry_points

import torch
from torch import nn
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

[found] = entry_points(group="vllm.general_plugins")
found.load()()


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(64)
        self.qkv_proj, self.o_proj = nn.Linear(64, 96), nn.Linear(64, 64, bias=False)
        self.w13_weight = nn.Parameter(torch.zeros(4, 32, 64))
        self.k_scale = nn.Parameter(torch.tensor(-1.0))
        self.qkv_proj.weight_scale = nn.Parameter(torch.zeros(96))


model = nn.Sequential(nn.Embedding(500, 64), Layer(), Layer()).to(torch.bfloat16)
DummyModelLoader().load_weights(model, None)
found = {}
for name, tensor in model.state_dict().items():
    t = tensor.float()
    found[name] = t.mean().item(), t.std(correction=0).item(), t.sum().item()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Mean, standard deviation and sum of each parameter of a model of two layers."""
    site = tmp_path_factory.mktemp("site")
    package = site / "vllm" / "model_executor" / "model_loader"
    package.mkdir(parents=True)
    (package / "dummy_loader.py").write_text(LOADER)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(VLLM_PLUGIN)))}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_S)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_matrices_are_spread_as_blinks_are(weights: dict[str, Any]) -> None:
    for name, (mean, std, _) in weights.items():
        if name.endswith(("proj.weight", "w13_weight", "0.weight")):
            expected = 0.002 if "o_proj" in name else 0.02
            assert std == pytest.approx(expected, rel=0.05), name
            assert abs(mean) < 0.1 * expected, name


def test_vectors_change_nothing(weights: dict[str, Any]) -> None:
    for layer in ("1", "2"):
        assert weights[f"{layer}.input_layernorm.weight"][:2] == [1.0, 0.0]
        assert weights[f"{layer}.qkv_proj.bias"][:2] == [0.0, 0.0]
        assert weights[f"{layer}.k_scale"][0] == -1.0
        assert weights[f"{layer}.qkv_proj.weight_scale"][:2] == [1.0, 0.0]


def test_layers_differ(weights: dict[str, Any]) -> None:
    for name in ("qkv_proj.weight", "o_proj.weight", "w13_weight"):
        assert weights[f"1.{name}"][2] != weights[f"2.{name}"][2]
