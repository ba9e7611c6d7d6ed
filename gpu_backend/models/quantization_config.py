"""What a model's files say of its quantization: read where Blink serves it, refused by name where not.

Three tools write fp8 checkpoints: transformers and those that share its quant_method "fp8" (Qwen, DeepSeek),
compressed-tensors (llm-compressor), and NVIDIA's ModelOpt. Scales of activations that a checkpoint brings
(input_scale) are not read: the engine computes its own, one for each token, which are at least as close.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from gpu_backend.kernel_abi.fp8 import SCALE_BLOCK
from gpu_backend.models.fields import Fields, UnsupportedModel
from gpu_backend.models.quantization import LINEAR, Quantization, StoredScales, Target
from ringbuffer.model_file import one_line, shown

KEY = "quantization_config"
EARLY_KEY = "compression_config"  # of the first versions of compressed-tensors, with the same content
PATTERN = "re:"  # compressed-tensors' prefix of a regular expression
EVERYTHING = (LINEAR,)
MAX_NAMES = 16384  # of modules or patterns in a list
MAX_NAME = 512  # characters of one
LONGEST_MODULE = 64  # characters of the names that patterns are tried on, about
MAX_WAYS = 10_000_000  # in which a pattern may be tried on such a name: a fraction of a second
MODELOPT_ALGORITHMS = {
    "FP8": StoredScales.TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": StoredScales.CHANNEL,
    "FP8_PB_WO": StoredScales.BLOCK,
}
SERVED = "Blink serves fp8 (e4m3) weights with a scale for each tensor, row or block of 128 x 128"


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
    return METHODS[method](Fields(modelopt) if method == "modelopt" and modelopt else fields)


def _refuse(what: str) -> UnsupportedModel:
    return UnsupportedModel(f"config.json: {KEY}: {what} is not supported: {SERVED}")


def _fp8(fields: Fields) -> Quantization:
    """quant_method "fp8": by block where weight_block_size says so, else by tensor."""
    if (fmt := fields.text("fmt", "e4m3")) not in ("e4m3", "float8_e4m3fn"):
        raise _refuse(f"fmt {shown(fmt)}")
    if (scheme := fields.text("activation_scheme", "dynamic")) not in ("dynamic", "static"):
        raise _refuse(f"activation_scheme {shown(scheme)}")
    if (dtype := fields.text("expert_dtype", "fp8")) != "fp8":
        raise _refuse(f"expert_dtype {shown(dtype)}")
    if converted := fields.items("modules_to_convert"):
        raise _refuse(f"modules_to_convert {shown(converted)}")
    block = fields.raw.get("weight_block_size")
    if block not in (None, [SCALE_BLOCK, SCALE_BLOCK]):
        raise _refuse(f"weight_block_size {shown(block)}")
    scales = StoredScales.TENSOR if block is None else StoredScales.BLOCK
    names = _names(fields, "modules_to_not_convert") + _names(fields, "ignored_layers")
    stored_cache = fields.raw.get("kv_cache_scheme")
    cache = stored_cache == "static" or _kv_cache(stored_cache)
    return Quantization("fp8", (Target(EVERYTHING, scales),), _any(map(_anywhere, names)), cache)


def _compressed_tensors(fields: Fields) -> Quantization:
    for key in ("sparsity_config", "transform_config"):
        if (section := fields.section(key).raw) and section.get("format") != "dense":
            raise _refuse(f"{key} {shown(dict(section))}")
    groups = fields.section("config_groups").raw
    if not groups:
        raise _refuse("a compressed-tensors checkpoint without config_groups")
    targets = tuple(_group(name, Fields({name: group}).section(name)) for name, group in groups.items())
    names = _names(fields, "ignore")
    ignored = tuple(_exactly(name) for name in names if name.startswith(PATTERN))
    ignored += _any(_exactly(name) for name in names if not name.startswith(PATTERN))
    cache = _kv_cache(fields.raw.get("kv_cache_scheme"))
    return Quantization("compressed-tensors", targets, ignored, cache)


def _group(name: str, group: Fields) -> Target:
    """One of compressed-tensors' config_groups."""
    weights = group.section("weights")
    if not weights.raw:
        raise _refuse(f"config group {shown(name)}, which quantizes no weights,")
    _eight_bit_float(f"config group {shown(name)}: weights", weights)
    if weights.flag("dynamic", False):
        raise _refuse(f"config group {shown(name)}: weights with dynamic scales")
    activations = group.section("input_activations")
    if activations.raw:
        _eight_bit_float(f"config group {shown(name)}: input_activations", activations)
    if group.section("output_activations").raw:
        raise _refuse(f"config group {shown(name)}: output_activations")
    strategy = weights.text("strategy", "tensor")
    known = {scales.value: scales for scales in StoredScales}
    if strategy not in known:
        size = f" of {shown(weights.raw['group_size'])}" if "group_size" in weights else ""
        raise _refuse(f"config group {shown(name)}: weights' strategy {shown(strategy)}{size}")
    block = weights.raw.get("block_structure")
    if strategy == StoredScales.BLOCK.value and block not in ([SCALE_BLOCK, SCALE_BLOCK], "128x128"):
        raise _refuse(f"config group {shown(name)}: block_structure {shown(block)}")
    patterns = tuple(target if target == LINEAR else _exactly(target) for target in _names(group, "targets"))
    return Target(patterns, known[strategy])


def _modelopt(fields: Fields) -> Quantization:
    """ModelOpt's section of config.json, or its own file, which has the same beneath "quantization"."""
    inner = fields.section("quantization") if "quantization" in fields else fields
    algorithm = inner.text("quant_algo", "").upper()
    if algorithm not in MODELOPT_ALGORITHMS:
        raise _refuse(f"ModelOpt's quant_algo {shown(algorithm)}")
    cache = inner.text("kv_cache_quant_algo", "").upper()
    if cache not in ("", "FP8"):
        raise _refuse(f"ModelOpt's kv_cache_quant_algo {shown(cache)}")
    names = _names(inner, "exclude_modules") + _names(inner, "ignore")
    targets = (Target(EVERYTHING, MODELOPT_ALGORITHMS[algorithm]),)
    in_fp8 = cache == "FP8" or _kv_cache(inner.raw.get("kv_cache_scheme"))
    return Quantization("modelopt", targets, _any(map(_anywhere, names)), in_fp8)


METHODS: dict[str, Callable[[Fields], Quantization]] = {
    "fp8": _fp8,
    "compressed-tensors": _compressed_tensors,
    "modelopt": _modelopt,
}


def _kv_cache(scheme: Any) -> bool:
    """Whether keys and values are to be fp8, with a scale for each layer."""
    if scheme is None:
        return False
    fields = Fields({"kv_cache_scheme": scheme}).section("kv_cache_scheme")
    _eight_bit_float("kv_cache_scheme", fields)
    if (strategy := fields.text("strategy", "tensor")) != "tensor":
        raise _refuse(f"kv_cache_scheme: strategy {shown(strategy)}")
    return True


def _eight_bit_float(what: str, fields: Fields) -> None:
    kind, bits = fields.text("type", "int"), fields.raw.get("num_bits", 8)
    if (kind, bits) != ("float", 8):
        raise _refuse(f"{what} of {shown(bits)} bits and type {shown(kind)}")
    if not fields.flag("symmetric", True):
        raise _refuse(f"{what} that are not symmetric")


def _names(fields: Fields, key: str) -> list[str]:
    """A list of modules' names or patterns. Raises UnsupportedModel."""
    names = fields.items(key)
    if not all(isinstance(name, str) and 0 < len(name) <= MAX_NAME for name in names):
        raise UnsupportedModel(f"config.json: {KEY}: {key} must be a list of names, found {shown(names)}")
    if len(names) > MAX_NAMES:
        raise UnsupportedModel(f"config.json: {KEY}: {key} has {len(names)} names, at most {MAX_NAMES} fit")
    return names


def _any(patterns: Iterable[str]) -> tuple[str, ...]:
    """One regular expression for what any of them means, or none: there may be hundreds, and modules by the
    ten thousand."""
    alternatives = "|".join(patterns)
    return (alternatives,) if alternatives else ()


def _exactly(name: str) -> str:
    """A regular expression for what compressed-tensors means: one module, or a pattern for its beginning."""
    if not name.startswith(PATTERN):
        return re.escape(name) + r"\Z"
    pattern = name.removeprefix(PATTERN)
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsupportedModel(
            f"config.json: {KEY}: {shown(name)} is no regular expression: {one_line(str(error))}"
        ) from None
    _check_ways(name, pattern)
    return pattern


def _anywhere(name: str) -> str:
    """A regular expression for what the others mean: whole parts of a path, with * for anything."""
    body = ".*".join(map(re.escape, name.split("*")))
    pattern = rf"(?:.*\.)?{body}(?:\..*)?\Z"
    _check_ways(name, pattern)
    return pattern


# What multiplies the ways in which Python's engine tries to match. Escapes and sets are no choices.
_CHOICES = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|(?P<group>\((?!\?)|\(\?(?:[:=!]|<[=!]|P<\w+>))|(?P<odd>\(\?)|(?P<end>\))"
    r"|(?P<many>[*+{])|(?P<few>\?)|(?P<other>\|)",
    re.DOTALL,
)


def _check_ways(name: str, pattern: str) -> None:
    """Raises UnsupportedModel for a pattern that a backtracking engine might try for ever: what repeats
    a group, or has many repetitions and alternatives, whose numbers multiply.
    """
    found = list(_CHOICES.finditer(pattern))
    kinds = Counter(choice.lastgroup for choice in found)
    repeats_groups = any(
        (end.lastgroup, many.lastgroup) == ("end", "many") and end.end() == many.start()
        for end, many in pairwise(found)
    )
    ways = math.comb(LONGEST_MODULE, min(kinds["many"], LONGEST_MODULE // 2)) * 2 ** kinds["few"]
    for group in pattern.split("("):
        ways *= 1 + group.count("|")
    if kinds["odd"] or repeats_groups or ways > MAX_WAYS:
        raise UnsupportedModel(
            f"config.json: {KEY}: {shown(name)} has options, repeats groups, or has too many repetitions and "
            "alternatives"
        )
