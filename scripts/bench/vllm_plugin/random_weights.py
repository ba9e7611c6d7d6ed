"""Random weights for vLLM like blink's own (RandomWeights of gpu_backend/engines/native/weights.py).

This is a plugin that vLLM loads in each of its processes, where this folder is on PYTHONPATH. vLLM's own
dummy weights come from one seed for every parameter, norms included, so all layers are equal, and they are so
small that a layer hardly changes a token's residual. A router may then send many tokens to the same few
experts, so that a step reads fewer weights than in a trained model. The plugin is made for vLLM 0.26, whose
loader it changes where that fills weights.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch

STD, ATTENTION_OUTPUT_STD = 0.02, 0.002


@torch.no_grad()  # type: ignore[untyped-decorator]
def fill(tensor: torch.Tensor, name: str) -> None:
    """In place: norms and scales are 1, other vectors 0, matrices normally distributed, of each name others.
    What has no dimension is a scale, whose value vLLM has set.
    """
    if tensor.device.type == "meta" or not tensor.is_floating_point() or tensor.ndim == 0:
        return
    if tensor.ndim == 1:
        tensor.fill_(1.0 if "norm" in name or "scale" in name else 0.0)
        return
    generator = torch.Generator(device=tensor.device).manual_seed(zlib.crc32(name.encode()))
    tensor.normal_(0.0, ATTENTION_OUTPUT_STD if ".o_proj" in name else STD, generator=generator)


def register() -> None:
    """The entry point."""
    from vllm.model_executor.model_loader import dummy_loader

    loader = dummy_loader.DummyModelLoader
    load, quantize_layer = loader.load_weights, loader._process_online_quant_layer
    names: dict[int, str] = {}  # of the modules of the model that is being loaded
    quantized: Any = None  # the module whose weights are made to be quantized at once

    def load_weights(self: Any, model: Any, config: Any) -> None:
        names.clear()
        names.update((id(module), name) for name, module in model.named_modules())
        load(self, model, config)

    def process_layer(self: Any, layer: Any, info: Any) -> None:
        nonlocal quantized
        quantized = layer
        quantize_layer(self, layer, info)

    def fill_one(tensor: torch.Tensor, *_: object) -> None:
        own = (*quantized.named_parameters(recurse=False), *quantized.named_buffers(recurse=False))
        [name] = (name for name, of in own if of is tensor)
        fill(tensor, f"{names[id(quantized)]}.{name}")

    def fill_module(module: Any, *_: object) -> None:
        for name, parameter in module.named_parameters(recurse=False):
            fill(parameter.data, f"{names[id(module)]}.{name}")

    loader.load_weights, loader._process_online_quant_layer = load_weights, process_layer
    dummy_loader.initialize_single_dummy_weight = fill_one
    dummy_loader.initialize_dummy_weights = fill_module
