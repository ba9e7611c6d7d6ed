"""What GPUs other than Hopper get: every dense model is served, by kernels that compile for them and ask for
no more than they have."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lowered import LIMITS
from small_models import DENSE, EXPERTS

from gpu_backend.cuda.chip import FIRST_WITH_OVERLAP, HOPPER, SERVED, Capability, Chip, arch_of
from gpu_backend.engines.graph_grid import GraphGrid
from gpu_backend.engines.native.kernels import NAMESPACE, activation_define
from gpu_backend.engines.native.lowering import kernel_names, lowered_steps
from gpu_backend.models.quantization import Codes, Form, GroupForm, ScaleForm
from gpu_backend.models.quantized import quantized
from gpu_backend.models.registry import read_model
from gpu_backend.ops.candidate import Choice, NoKernel
from gpu_backend.ops.launch import LibraryGemm

OTHERS = [capability for capability in SERVED if capability != HOPPER]
HOPPERS = re.compile("tiled|skinny|flash|megakernel|decode_attention")
SHARED_BYTES = 99 << 10  # that a block can have where it has least: on 8.9 and 12.0
MODELS = {
    "llama": DENSE,
    "large": {
        **DENSE,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "head_dim": 128,
        "vocab_size": 128256,
    },
    "gemma": {**DENSE, "architectures": ["Gemma3ForCausalLM"], "head_dim": 256, "sliding_window": 64},
    "qwen2": {**DENSE, "architectures": ["Qwen2ForCausalLM"]},
}


def plans(fields: dict[str, object], folder: Path, capability: Capability) -> tuple[list[Choice], ...]:
    (folder / "config.json").write_text(json.dumps(fields))
    return lowered_steps(read_model(folder), LIMITS, GraphGrid(LIMITS).shapes, Chip(84, capability))


@pytest.mark.parametrize("capability", OTHERS)
@pytest.mark.parametrize("model", MODELS)
def test_dense_models_are_served(model: str, capability: Capability, tmp_path: Path) -> None:
    planned = plans(MODELS[model], tmp_path, capability)
    works = [work for plan in planned for choice in plan for work in choice.launches]
    launches = [work for work in works if not isinstance(work, LibraryGemm)]
    assert max(launch.shared_bytes for launch in launches) <= SHARED_BYTES
    assert not [launch.kernel for launch in launches if HOPPERS.search(launch.kernel)]
    if capability < FIRST_WITH_OVERLAP:
        assert not any(launch.overlap or launch.cluster for launch in launches)
    else:
        assert any(launch.overlap for launch in launches)


@pytest.mark.parametrize("capability", OTHERS)
def test_experts_are_refused_with_the_reason(capability: Capability, tmp_path: Path) -> None:
    with pytest.raises(NoKernel, match=r"moe_tiled: it is made for compute capability 9\.0, and"):
        plans(EXPERTS, tmp_path, capability)


@pytest.mark.parametrize("form", [ScaleForm.ROW, GroupForm(Codes.INT4, 128)])
@pytest.mark.parametrize("capability", OTHERS)
def test_narrow_weights_are_refused_with_the_reason(
    capability: Capability, form: Form, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**DENSE, "intermediate_size": 1024}))
    model = quantized(read_model(tmp_path), form)
    with pytest.raises(NoKernel, match=r"compute capability 9\.0"):
        lowered_steps(model, LIMITS, GraphGrid(LIMITS).shapes, Chip(84, capability))


@pytest.mark.slow
@pytest.mark.parametrize("capability", OTHERS)
def test_all_that_is_served_compiles(capability: Capability, tmp_path: Path) -> None:
    """The kernels of the models' steps, of all models on the first; and the scheduler with its launches from
    the device, on the first and the last alone, as that takes half a minute each."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="needs cuda-bindings: scripts/setup gpu")
    from gpu_backend.cuda.compile import compile_module, compile_templates, source_root
    from gpu_backend.models.abi import Activation

    first = capability == min(OTHERS)
    models = [MODELS[name] for name in (MODELS if first else ("large", "gemma"))]
    names = kernel_names([plan for fields in models for plan in plans(fields, tmp_path, capability)])
    wanted = [NAMESPACE + name for name in sorted(names)]
    source, arch = source_root() / "kernels", arch_of(capability)
    cubin, symbols = compile_templates(source / "engine.cu", arch, wanted, activation_define(Activation.SILU))
    assert cubin.startswith(b"\x7fELF")
    assert set(symbols) == set(wanted)
    if capability in (min(OTHERS), max(OTHERS)):
        assert compile_module(source / "scheduler" / "scheduler.cu", arch, rdc=True).startswith(b"\x7fELF")
