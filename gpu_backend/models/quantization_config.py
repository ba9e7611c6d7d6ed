"""What a model's files say of its quantization: read where Blink serves it, refused by name where not.

transformers and those that share its quant_method "fp8" (Qwen, DeepSeek) write fp8; compressed-tensors
(llm-compressor) and NVIDIA's ModelOpt write fp8 and four bits; what writes four bits only is in
fourbit_config.py. Scales of activations that a checkpoint brings (input_scale) are not read: activations are
multiplied as they are, or the engine computes scales of its own, one for each token, which are at least as
close.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.fields import Fields, UnsupportedModel
from gpu_backend.models.fourbit_config import (
    FOUR_BITS,
    awq,
    compressed_groups,
    gptq,
    modelopt_groups,
    mxfp4,
)
from gpu_backend.models.quantization import LINEAR, Quantization, Stored, StoredScales, Target
from gpu_backend.models.quantization_names import (
    EVERYTHING,
    KEY,
    PATTERN,
    SERVED,
    any_of,
    anywhere,
    exactly,
    names,
    refused,
)
from ringbuffer.model_file import shown

EARLY_KEY = "compression_config"  # of the first versions of compressed-tensors, with the same content
MODELOPT_ALGORITHMS = {
    "FP8": StoredScales.TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": StoredScales.CHANNEL,
    "FP8_PB_WO": StoredScales.BLOCK,
}


def read_quantization(config: Mapping[str, Any], modelopt: Mapping[str, Any]) -> Quantization | None:
    """Of the contents of config.json and of ModelOpt's hf_quant_config.json, {} where there is none.

    None: the checkpoint is not quantized. Raises UnsupportedModel.
    """
    if config.get(KEY) is None and config.get(EARLY_KEY) is not None:
        section = {"quant_method": "compressed-tensors", **Fields(config).section(EARLY_KEY).raw}
        try:
            return read_quantization({KEY: section}, modelopt)
        except UnsupportedModel as error:  # which names the key of today
            raise UnsupportedModel(str(error).replace(KEY, EARLY_KEY, 1)) from None
    if config.get(KEY) is None:
        return _modelopt(Fields(modelopt)) if modelopt else None
    fields = Fields(config).section(KEY)
    method = fields.text("quant_method", "")
    if method not in METHODS:
        raise UnsupportedModel(
            f"config.json: {KEY}: quant_method {shown(method)} is not supported: {SERVED}, as "
            f"{', '.join(METHODS)} write them"
        )
    return METHODS[method](Fields(modelopt) if METHODS[method] is _modelopt and modelopt else fields)


def _fp8(fields: Fields) -> Quantization:
    """quant_method "fp8": by block where weight_block_size says so, else by tensor."""
    if (fmt := fields.text("fmt", "e4m3")) not in ("e4m3", "float8_e4m3fn"):
        raise refused(f"fmt {shown(fmt)}")
    if (scheme := fields.text("activation_scheme", "dynamic")) not in ("dynamic", "static"):
        raise refused(f"activation_scheme {shown(scheme)}")
    if (dtype := fields.text("expert_dtype", "fp8")) != "fp8":
        raise refused(f"expert_dtype {shown(dtype)}")
    if converted := fields.items("modules_to_convert"):
        raise refused(f"modules_to_convert {shown(converted)}")
    block = fields.raw.get("weight_block_size")
    if block not in (None, [SCALE_BLOCK, SCALE_BLOCK]):
        raise refused(f"weight_block_size {shown(block)}")
    scales = StoredScales.TENSOR if block is None else StoredScales.BLOCK
    kept = names(fields, "modules_to_not_convert") + names(fields, "ignored_layers")
    stored_cache = fields.raw.get("kv_cache_scheme")
    cache = stored_cache == "static" or _kv_cache(stored_cache)
    return Quantization("fp8", (Target(EVERYTHING, scales),), any_of(map(anywhere, kept)), cache)


def _compressed_tensors(fields: Fields) -> Quantization:
    for key in ("sparsity_config", "transform_config"):
        if (section := fields.section(key).raw) and section.get("format") != "dense":
            raise refused(f"{key} {shown(dict(section))}")
    groups = fields.section("config_groups").raw
    if not groups:
        raise refused("a compressed-tensors checkpoint without config_groups")
    written = fields.text("format", "")
    targets = tuple(
        _group(name, Fields({name: group}).section(name), written) for name, group in groups.items()
    )
    kept = names(fields, "ignore")
    ignored = tuple(exactly(name) for name in kept if name.startswith(PATTERN))
    ignored += any_of(exactly(name) for name in kept if not name.startswith(PATTERN))
    cache = _kv_cache(fields.raw.get("kv_cache_scheme"))
    return Quantization("compressed-tensors", targets, ignored, cache)


def _group(name: str, group: Fields, written: str) -> Target:
    """One of compressed-tensors' config_groups. `written`: the format of all, which a group may overrule."""
    what = f"config group {shown(name)}"
    weights = group.section("weights")
    if not weights.raw:
        raise refused(f"{what}, which quantizes no weights,")
    if weights.flag("dynamic", False):
        raise refused(f"{what}: weights with dynamic scales")
    if group.section("output_activations").raw:
        raise refused(f"{what}: output_activations")
    patterns = tuple(target if target == LINEAR else exactly(target) for target in names(group, "targets"))
    if weights.raw.get("num_bits") == FOUR_BITS:
        activations = group.section("input_activations")
        return Target(patterns, compressed_groups(what, weights, activations, group.text("format", written)))
    return Target(patterns, _compressed_fp8(what, weights, group.section("input_activations")))


def _compressed_fp8(what: str, weights: Fields, activations: Fields) -> Stored:
    _eight_bit_float(f"{what}: weights", weights)
    if activations.raw:
        _eight_bit_float(f"{what}: input_activations", activations)
    strategy = weights.text("strategy", "tensor")
    known = {scales.value: scales for scales in StoredScales}
    if strategy not in known:
        size = f" of {shown(weights.raw['group_size'])}" if "group_size" in weights else ""
        raise refused(f"{what}: weights' strategy {shown(strategy)}{size}")
    block = weights.raw.get("block_structure")
    if strategy == StoredScales.BLOCK.value and block not in ([SCALE_BLOCK, SCALE_BLOCK], "128x128"):
        raise refused(f"{what}: block_structure {shown(block)}")
    return known[strategy]


def _modelopt(fields: Fields) -> Quantization:
    """ModelOpt's section of config.json, or its own file, which has the same beneath "quantization"."""
    inner = fields.section("quantization") if "quantization" in fields else fields
    algorithm = inner.text("quant_algo", "").upper()
    scales: Stored | None = MODELOPT_ALGORITHMS.get(algorithm) or modelopt_groups(algorithm, inner)
    if scales is None:
        raise refused(f"ModelOpt's quant_algo {shown(algorithm)}")
    cache = inner.text("kv_cache_quant_algo", "").upper()
    if cache not in ("", "FP8"):
        raise refused(f"ModelOpt's kv_cache_quant_algo {shown(cache)}")
    kept = names(inner, "exclude_modules") + names(inner, "ignore")
    in_fp8 = cache == "FP8" or _kv_cache(inner.raw.get("kv_cache_scheme"))
    return Quantization("modelopt", (Target(EVERYTHING, scales),), any_of(map(anywhere, kept)), in_fp8)


METHODS: dict[str, Callable[[Fields], Quantization]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,  # as some exports of NVFP4 call it
    "awq": awq,
    "gptq": gptq,
    "mxfp4": mxfp4,
}


def _kv_cache(scheme: Any) -> bool:
    """Whether keys and values are to be fp8, with a scale for each layer."""
    if scheme is None:
        return False
    fields = Fields({"kv_cache_scheme": scheme}).section("kv_cache_scheme")
    _eight_bit_float("kv_cache_scheme", fields)
    if (strategy := fields.text("strategy", "tensor")) != "tensor":
        raise refused(f"kv_cache_scheme: strategy {shown(strategy)}")
    return True


def _eight_bit_float(what: str, fields: Fields) -> None:
    kind, bits = fields.text("type", "int"), fields.raw.get("num_bits", 8)
    if (kind, bits) != ("float", 8):
        raise refused(f"{what} of {shown(bits)} bits and type {shown(kind)}")
    if not fields.flag("symmetric", True):
        raise refused(f"{what} that are not symmetric")
