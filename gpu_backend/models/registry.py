"""The architectures that can be served, by the name that config.json gives them, and their limits.

A further family is one file beside this one, and one line here (docs/adding-a-model.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpu_backend.abi import MAX_EOS
from gpu_backend.models.description import DTYPES, Experts, Model
from gpu_backend.models.ends_of_turns import TokenizerEnds, ends_of_turns, read_tokenizer_ends
from gpu_backend.models.fields import Fields, UnsupportedModel, read_json
from gpu_backend.models.gemma import gemma3, gemma3_conditional
from gpu_backend.models.gpt_oss import gpt_oss
from gpu_backend.models.llama import llama, ministral, mistral
from gpu_backend.models.mistral3 import ministral3, mistral3_conditional
from gpu_backend.models.phi import phi3
from gpu_backend.models.quantization import Form
from gpu_backend.models.quantization_config import read_quantization
from gpu_backend.models.quantized import quantized, stored
from gpu_backend.models.qwen import qwen2, qwen3, qwen3_moe
from gpu_backend.models.rope import Rope
from ringbuffer.model_file import one_line, shown

ARCHITECTURES: dict[str, Callable[[Fields], Model]] = {
    "Gemma3ForCausalLM": gemma3,
    "Gemma3ForConditionalGeneration": gemma3_conditional,
    "GptOssForCausalLM": gpt_oss,
    "LlamaForCausalLM": llama,
    "MinistralForCausalLM": ministral,
    "Ministral3ForCausalLM": ministral3,
    "Mistral3ForConditionalGeneration": mistral3_conditional,
    "MistralForCausalLM": mistral,
    "Phi3ForCausalLM": phi3,
    "Qwen2ForCausalLM": qwen2,
    "Qwen3ForCausalLM": qwen3,
    "Qwen3MoeForCausalLM": qwen3_moe,
}
MAX_EXPERTS_PER_TOKEN = 32  # the router's warp hands them to one lane each
MAX_VOCAB = 1 << 19  # the sampler keeps a bit per token in shared memory, and sums as many 40-bit weights


def read_model(
    directory: Path, form: Form | None = None, notice: Callable[[str], None] = lambda text: None
) -> Model:
    """The description of the model in `directory`, by config.json and, where they are there,
    generation_config.json, hf_quant_config.json and the tokenizer's files.

    `form`: its linear layers are to be narrow, with such scales, where the checkpoint's are not already.
    `notice` is told what is left out of these files.
    Raises UnsupportedModel, and FileNotFoundError when there is no config.json.
    """
    others = (directory / name for name in ("generation_config.json", "hf_quant_config.json"))
    generation, modelopt = (read_json(path) if path.exists() else {} for path in others)
    config = read_json(directory / "config.json")
    model = describe(config, generation, modelopt, read_tokenizer_ends(directory), notice)
    return quantized(model, form) if form else model


def describe(
    raw: dict[str, Any],
    generation: dict[str, Any] | None = None,
    modelopt: dict[str, Any] | None = None,
    tokenizer: TokenizerEnds | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> Model:
    """The description of a model by the contents of these three files, and by the ends of turns that its
    tokenizer has. Raises UnsupportedModel."""
    fields = Fields(raw)
    quantization = read_quantization(raw, modelopt or {})
    model = _family(fields)(fields)
    ends = ends_of_turns(model.vocab_size, raw, generation or {}, tokenizer or TokenizerEnds(), notice)
    model = replace(model, eos_ids=ends)
    _validate(model)
    return stored(model, quantization) if quantization else model


def _family(fields: Fields) -> Callable[[Fields], Model]:
    names = fields.items("architectures")
    for name in names:
        if isinstance(name, str) and name in ARCHITECTURES:
            return ARCHITECTURES[name]
    found = (
        ", ".join(one_line(name, 80) if isinstance(name, str) else shown(name) for name in names[:4])
        or "none"
    )
    raise UnsupportedModel(f"architectures: {found}; supported are {', '.join(ARCHITECTURES)}")


def _validate(model: Model) -> None:
    """What the kernels rely on. The limits are those of kernels/ops."""
    rules = [
        (
            model.n_heads % model.n_kv_heads == 0,
            "num_attention_heads must be a multiple of num_key_value_heads",
        ),
        (model.head_dim % 16 == 0, "head_dim must be a multiple of 16"),
        (model.hidden % 8 == 0, "hidden_size must be a multiple of 8"),
        (model.intermediate % 8 == 0, "intermediate_size must be a multiple of 8"),
        *_expert_rules(model.experts),
        (model.vocab_size <= MAX_VOCAB, f"vocab_size must be at most {MAX_VOCAB}"),
        (model.norm_eps > 0, "rms_norm_eps must be positive"),
        (model.dtype in DTYPES, f"dtype must be one of {', '.join(DTYPES)}, found {shown(model.dtype)}"),
        (
            len(model.eos_ids) <= MAX_EOS,
            f"eos_token_id must name at most {MAX_EOS} ids, those of generation_config.json included",
        ),
    ]
    for holds, message in rules:
        if not holds:
            raise UnsupportedModel(f"config.json: {message}")
    for rope in model.ropes:
        _validate_rope(model, rope)


def _validate_rope(model: Model, rope: Rope) -> None:
    try:
        with np.errstate(all="ignore"):
            finite = np.isfinite(rope.table(model.head_dim, model.max_context)).all()
    except (ArithmeticError, ValueError, TypeError):
        finite = np.False_
    if not finite:
        raise UnsupportedModel("config.json: its rope parameters give no finite rotation")


def _expert_rules(experts: Experts | None) -> list[tuple[bool, str]]:
    if experts is None:
        return []
    most = min(experts.count, MAX_EXPERTS_PER_TOKEN)
    return [
        (experts.per_token <= most, f"num_experts_per_tok must be at most {most}"),
        (experts.intermediate % 8 == 0, "moe_intermediate_size must be a multiple of 8"),
    ]
