"""The reference engine over fp8 weights: logits against transformers, which computes with their values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from model_factory import as_mistral3_conditional, as_published, make_model
from quantized_checkpoint import LAYOUTS
from quantized_factory import SIZES, make_quantized
from reference_rig import Rig
from safetensors.torch import load_file, save_file

from gpu_backend.models.fp8 import dequantized, quantize
from gpu_backend.models.quantization import ScaleForm


def check(rig: Rig) -> None:
    """A prompt in chunks, packed with another; then both decode."""
    for row, n in {0: 70, 1: 9}.items():
        rig.driver.start(row, rig.prompt(n, seed=row))
    rig.prefill([(0, 0, 40)])
    rig.prefill([(0, 40, 70), (1, 0, 9)])
    rig.decode([0, 1])
    rig.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("family", SIZES)
def test_published_checkpoints(tmp_path: Path, family: str, layout: str) -> None:
    check(Rig(tmp_path, make_quantized(tmp_path, family, layout)))


def test_the_text_part_of_a_ministral_that_takes_images(tmp_path: Path) -> None:
    oracle = make_quantized(tmp_path, "ministral3", "fp8-tensor-static-inverse")
    as_mistral3_conditional(tmp_path)
    check(Rig(tmp_path, oracle))


def test_the_values_are_not_those_before_rounding(tmp_path: Path) -> None:
    """Else the tests here would hold of an engine that reads something else."""
    make_quantized(tmp_path, "llama", "fp8-block")
    oracle = make_model(
        tmp_path / "other",
        "llama",
        torch.bfloat16,
        num_hidden_layers=2,
        intermediate_size=256,
        **SIZES["llama"],
    )
    with pytest.raises(AssertionError, match="relative error"):
        check(Rig(tmp_path, oracle))


def test_rows_in_another_order_keep_their_scales(tmp_path: Path) -> None:
    """A partial rotation loads the rows of q and k in another order."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.75}
    oracle = make_quantized(tmp_path, "phi3", "compressed-tensors-channel", rope_parameters=rope)
    check(Rig(tmp_path, oracle))


@pytest.mark.parametrize("form", list(ScaleForm))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rounded_while_loading(tmp_path: Path, form: ScaleForm, dtype: torch.dtype) -> None:
    """The linear layers and the experts, and nothing else."""
    model = make_model(tmp_path, "qwen3-moe", dtype, num_hidden_layers=2, **SIZES["qwen3-moe"])
    values: dict[str, Any] = load_file(tmp_path / "model.safetensors")
    rounded = 0
    for name, tensor in values.items():
        values[name] = tensor.float()
        if name.endswith("_proj.weight"):
            values[name] = torch.from_numpy(dequantized(*quantize(tensor.float().numpy(), form)))
            rounded += 1
    assert rounded == 2 * (4 + 3 * 8)
    model.save_pretrained(tmp_path / "plain")
    save_file(values, tmp_path / "plain" / "model.safetensors", {"format": "pt"})
    oracle = type(model).from_pretrained(tmp_path / "plain", dtype=torch.float32).eval()
    as_published(tmp_path)
    check(Rig(tmp_path, oracle, form=form))
