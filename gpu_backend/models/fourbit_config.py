"""What checkpoints in four bits say of themselves: AWQ, GPTQ, MXFP4, and the parts of compressed-tensors' and
ModelOpt's sections that are about groups.

Their activations stay as they are (w4a16), also where a checkpoint was made for activations in four bits
(NVFP4, MXFP4), which no instruction of a Hopper GPU multiplies: they are then closer than it asks.
Activations in eight bits are refused, because servers for which such a checkpoint was made round them.
"""

from __future__ import annotations

import re
from typing import Any

from gpu_backend.models.fields import Fields
from gpu_backend.models.quantization import (
    GROUPS,
    INTEGER_GROUP,
    Packing,
    Quantization,
    StoredGroups,
    Target,
)
from gpu_backend.models.quantization_names import (
    EVERYTHING,
    any_of,
    anywhere,
    exactly,
    names,
    refused,
)
from ringbuffer.model_file import shown, whole

FOUR_BITS = 4
WHOLE_ROW = -1  # as a group's size: AWQ's and GPTQ's way to say it
NVFP4_GROUP, MXFP4_GROUP = 16, 32
MODELOPT_NVFP4 = ("NVFP4", "W4A16_NVFP4")
GPTQ_FORMATS = {"gptq": Packing.GPTQ, "gptq_v2": Packing.GPTQ_V2}
# By the format of compressed-tensors: the strategy and the group of weights in it.
COMPRESSED_FLOATS = {
    Packing.NVFP4_PACKED.value: (Packing.NVFP4_PACKED, "tensor_group", NVFP4_GROUP),
    Packing.MXFP4_PACKED.value: (Packing.MXFP4_PACKED, "group", MXFP4_GROUP),
}


def awq(fields: Fields) -> Quantization:
    """AutoAWQ's section. It names the modules that it leaves by any part of their names."""
    _bits("AWQ", fields)
    if (version := fields.text("version", "gemm").lower()) != "gemm":
        raise refused(f"AWQ's version {shown(version)}")
    group = _group_size("AWQ", fields.raw.get("group_size", fields.raw.get("q_group_size", 128)))
    if not fields.flag("zero_point", True):
        raise refused("AWQ with zero_point False")
    scales = StoredGroups(Packing.AWQ, group, symmetric=False)
    kept = names(fields, "modules_to_not_convert")
    ignored = any_of(f".*{re.escape(name)}" for name in kept)
    return Quantization("awq", (Target(EVERYTHING, scales),), ignored, kv_cache=False)


def gptq(fields: Fields) -> Quantization:
    """GPTQ's section, as AutoGPTQ, GPTQModel and transformers write it. Whether `desc_act` has put columns of
    a group apart is seen in the tensors (gpu_backend/weights/packed.py)."""
    _bits("GPTQ", fields)
    written = fields.text("checkpoint_format", "gptq").lower()
    if written not in GPTQ_FORMATS:
        raise refused(f"GPTQ's checkpoint_format {shown(written)}")
    group = _group_size("GPTQ", fields.raw.get("group_size", 128))
    # Zeros are stored in either case, and read.
    scales = StoredGroups(GPTQ_FORMATS[written], group, symmetric=False)
    blocks = fields.items("modules_in_block_to_quantize")
    chosen = [name for block in blocks for name in (block if isinstance(block, list) else [block])]
    patterns = any_of(map(anywhere, names(Fields({"chosen": chosen}), "chosen"))) or EVERYTHING
    kept = names(fields, "modules_to_not_convert") + ([] if fields.flag("lm_head", False) else ["lm_head"])
    ignored = (*_left_by_gptq(fields), *any_of(map(anywhere, kept)))
    return Quantization("gptq", (Target(patterns, scales),), ignored, kv_cache=False)


def _left_by_gptq(fields: Fields) -> list[str]:
    """Patterns of the modules that GPTQModel's `dynamic` leaves as they are, which begin with "-:".
    Others change how a module is quantized."""
    left, dynamic = [], fields.section("dynamic").raw
    names(Fields({"dynamic": list(dynamic)}), "dynamic")
    for pattern, changes in dynamic.items():
        if not pattern.startswith("-:"):
            if not isinstance(changes, dict) or changes:
                raise refused(f"GPTQ's dynamic {shown(pattern)}: {shown(changes)}")
            continue
        left.append(exactly("re:" + pattern.removeprefix("-:")))
    return left


def mxfp4(fields: Fields) -> Quantization:
    """gpt-oss's section: all modules that it does not name."""
    kept = names(fields, "modules_to_not_convert")
    scales = StoredGroups(Packing.MXFP4, MXFP4_GROUP)
    return Quantization("mxfp4", (Target(EVERYTHING, scales),), any_of(map(anywhere, kept)), kv_cache=False)


def compressed_groups(what: str, weights: Fields, activations: Fields, written: str) -> StoredGroups:
    """Of one of compressed-tensors' groups in four bits, in the format `written`. Raises UnsupportedModel."""
    kind, strategy = weights.text("type", "int"), weights.text("strategy", "group")
    if activations.raw and activations.raw.get("num_bits") != FOUR_BITS:
        raise refused(f"{what}: input_activations of {shown(activations.raw.get('num_bits'))} bits")
    if kind == "float":
        if written not in COMPRESSED_FLOATS:
            raise refused(f"{what}: weights of 4 bits and type 'float' in the format {shown(written)}")
        packing, wanted, size = COMPRESSED_FLOATS[written]
        group = weights.raw.get("group_size", size)
        if (strategy, group) != (wanted, size):
            raise refused(f"{what}: {written} with strategy {shown(strategy)} of {shown(group)}")
        return StoredGroups(packing, size)
    if kind != "int" or activations.raw:
        raise refused(f"{what}: weights of 4 bits and type {shown(kind)}, with input_activations")
    if written != Packing.PACKED.value:
        raise refused(f"{what}: weights of 4 bits and type 'int' in the format {shown(written)}")
    if strategy not in ("group", "channel"):
        raise refused(f"{what}: weights' strategy {shown(strategy)} in four bits")
    order = weights.raw.get("actorder")
    if order not in (None, False, "weight", "static"):  # those leave columns of a group together
        raise refused(f"{what}: actorder {shown(order)}, which puts columns of a group apart,")
    group = _group_size(what, weights.raw.get("group_size")) if strategy == "group" else None
    return StoredGroups(Packing.PACKED, group, weights.flag("symmetric", True))


def modelopt_groups(algorithm: str, fields: Fields) -> StoredGroups | None:
    """Of ModelOpt's `quant_algo`, where it is one in four bits that is served; else None."""
    if algorithm not in MODELOPT_NVFP4:
        return None
    if (group := fields.raw.get("group_size", NVFP4_GROUP)) != NVFP4_GROUP:
        raise refused(f"ModelOpt's {algorithm} with group_size {shown(group)}")
    return StoredGroups(Packing.NVFP4, NVFP4_GROUP)


def _bits(tool: str, fields: Fields) -> None:
    bits = fields.raw.get("bits", fields.raw.get("w_bit"))
    if bits != FOUR_BITS:
        raise refused(f"{tool} with {shown(bits)} bits")


def _group_size(tool: str, value: Any) -> int | None:
    """None for a whole row. Raises UnsupportedModel."""
    size = whole(value)
    if size == WHOLE_ROW:
        return None
    largest = GROUPS[0]
    if size is None or size < INTEGER_GROUP or (size not in GROUPS and size % largest):
        raise refused(f"{tool} with group_size {shown(value)}")
    return size
