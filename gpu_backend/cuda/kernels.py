"""The kernels of kernels/engine.cu, instantiated for one model's element type and head sizes."""

from __future__ import annotations

from gpu_backend.cuda.compile import compile_templates, source_root
from gpu_backend.cuda.driver import Kernel, Module
from gpu_backend.cuda.held import held_products
from gpu_backend.cuda.shared_memory import shared_bytes
from gpu_backend.cuda.stream import STREAM_CHUNK
from gpu_backend.cuda.tiled import TILED_OUTPUTS
from gpu_backend.cuda.wide import wide_instances
from gpu_backend.engine.decoder_abi import STAGE_CHUNKS
from gpu_backend.model.config import ModelConfig

HALF_TYPES = {"bfloat16": "__nv_bfloat16", "float16": "__half"}
MAX_GROUP = 8
MAX_DECODER_GROUP = 4  # the scratch of 8 would cost the decoder a stage of its weight rings
STREAM_OUTPUTS = {"half": "kStreamHalf", "float": "kStreamFloat", "add": "kStreamAdd", "silu": "kStreamSilu"}
STREAM_GROUPS = (1,)  # of 8 rows of x
EXPERT_STREAMS = (
    ("gate_up", "kGateUp", "kMade"),
    ("gate_up_few", "kGateUp", "kOfFew"),
    ("down", "kDown", "kMade"),
)
MULTIPROCESSORS = 132  # of an H100 or H200 as SXM module
FLASH_HEAD_DIMS = (64, 128)
DECODER_HEAD_DIMS = (64, 128)
DECODER_HIDDEN_TILES = 8  # of hidden a block has at most: one for each warp
DECODER_WARPS = 8  # that multiply
DECODER_SLICE = DECODER_WARPS * STREAM_CHUNK  # of k: divides every matrix's columns
DECODER_FEWEST_CHUNKS = 6  # of a stage, if a row has so many: with 5 wide products are faster by 17 %
DECODER_TILE = 16  # rows of a matrix; divides them


def half_dtype(config: ModelConfig) -> str:
    """What the engine computes in: the checkpoint's type, or bfloat16 for an fp32 checkpoint."""
    return config.dtype if config.dtype in HALF_TYPES else "bfloat16"


def decode_group(n_heads: int, n_kv_heads: int) -> int:
    """Query heads that a block of decode attention serves: those of a KV head, to a power of two up to 8."""
    return min(MAX_GROUP, 1 << (n_heads // n_kv_heads - 1).bit_length())


def decoder_group(config: ModelConfig) -> int:
    """The same of the decoder kernel's attention."""
    return min(MAX_DECODER_GROUP, decode_group(config.n_heads, config.n_kv_heads))


def suits_flash(config: ModelConfig) -> bool:
    """Whether prefill attends with wgmma (kernels/ops/attention_flash.h)."""
    return config.head_dim in FLASH_HEAD_DIMS


def decoder_blocks(config: ModelConfig, n_multiprocessors: int) -> int:
    """The decoder kernel's: one a multiprocessor but the scheduler's, each with a tile of every matrix."""
    least = min(config.hidden, config.qkv_width, 2 * config.intermediate, config.vocab_size)
    return min(n_multiprocessors - 1, least // DECODER_TILE)


def stage_chunks(n_in: int) -> int:
    """Chunks of a row that a warp of the decoder brings at once: as many as divide its share."""
    share = n_in // DECODER_SLICE
    return next(n for n in range(STAGE_CHUNKS, 0, -1) if share % n == 0)


def suits_decoder(config: ModelConfig, n_multiprocessors: int = MULTIPROCESSORS) -> bool:
    """Whether the decoder kernel (kernels/decoder) covers the model: its tiles fit every matrix exactly, its
    stages keep the memory busy, a block's warps hold its part of the residual, and what it writes before its
    norm is known fits a half."""
    columns = (config.hidden, config.attention_width, config.intermediate)
    return (
        config.experts is None
        and half_dtype(config) == "bfloat16"
        and config.head_dim in DECODER_HEAD_DIMS
        and all(n % DECODER_SLICE == 0 for n in columns)
        and all(stage_chunks(n) >= min(DECODER_FEWEST_CHUNKS, n // DECODER_SLICE) for n in columns)
        and config.vocab_size % DECODER_TILE == 0
        and config.hidden <= DECODER_TILE * DECODER_HIDDEN_TILES * decoder_blocks(config, n_multiprocessors)
    )


def kernel_names(config: ModelConfig, n_multiprocessors: int = MULTIPROCESSORS) -> dict[str, str]:
    """C++ name of each op's kernel."""
    half, head_dim = HALF_TYPES[half_dtype(config)], config.head_dim
    templates = {
        "gate": "gate_kernel",
        "embed": f"embed_kernel<{half}>",
        "rmsnorm": f"rmsnorm_kernel<{half}>",
        "rope": f"rope_kernel<{half}, {head_dim}>",
        "attention_plan": "attention_plan_kernel<>",
        "attention_stream": f"attention_stream_kernel<{half}, {head_dim}>",
        "silu_mul": f"silu_mul_kernel<{half}>",
        "gather_last": f"gather_last_kernel<{half}>",
        "gather_rmsnorm": f"gather_rmsnorm_kernel<{half}>",
        "sample": "sample_kernel",
        "random": f"random_kernel<{half}>",
    }
    for output, constant in STREAM_OUTPUTS.items():
        for groups in STREAM_GROUPS:
            name = f"linear_stream_kernel<{half}, blink::{constant}, {groups}>"
            templates[f"linear_{output}_{groups}"] = name
    for op, (output, *sizes) in wide_instances(config, n_multiprocessors).items():
        arguments = ", ".join([half, f"blink::{STREAM_OUTPUTS[output]}", *map(str, sizes)])
        templates[op] = f"linear_wide_kernel<{arguments}>"
    for output in TILED_OUTPUTS:
        templates[f"tiled_{output}"] = f"linear_tiled_kernel<{half}, blink::{STREAM_OUTPUTS[output]}>"
    if suits_flash(config):
        templates["prefill_plan"] = "prefill_plan_kernel"
        templates["attention_flash"] = f"attention_flash_kernel<{half}, {head_dim}>"
    else:
        templates["attention_prefill"] = f"attention_prefill_kernel<{half}, {head_dim}>"
    if suits_decoder(config, n_multiprocessors):
        templates["decoder"] = f"decoder_kernel<{half}, {head_dim}, {decoder_group(config)}>"
    if config.experts is not None:
        templates |= {
            "router": f"router_kernel<{half}>",
            "route": "route_kernel",
            "expert_plan": "expert_plan_kernel",
            "expert_gate_up_one": f"expert_one_gate_up_kernel<{half}>",
            "expert_down_one": f"expert_one_down_kernel<{half}>",
            "expert_sum": f"expert_sum_kernel<{half}>",
            "expert_sum_rmsnorm": f"expert_sum_rmsnorm_kernel<{half}>",
        }
        for name, product in (("gate_up", "kGateUp"), ("down", "kDown")):
            templates[f"expert_tiled_{name}"] = f"expert_tiled_kernel<{half}, blink::{product}>"
        for name, product, choice in EXPERT_STREAMS:
            kernel = f"expert_stream_kernel<{half}, blink::{product}, blink::{choice}>"
            templates[f"expert_stream_{name}"] = kernel
    for op, held in held_products(config).items():
        output, normed = ("kStreamHalf", "true") if op == "held_qkv" else ("kStreamAdd", "false")
        templates[op] = f"linear_held_kernel<{half}, blink::{output}, {held.chunks}, {normed}>"
    return {op: f"blink::{template}" for op, template in templates.items()}


class Kernels:
    """The loaded module: kernels["embed"].launch(...)."""

    def __init__(self, arch: str, config: ModelConfig, n_multiprocessors: int = MULTIPROCESSORS) -> None:
        names = kernel_names(config, n_multiprocessors)
        source = source_root() / "kernels" / "engine.cu"
        cubin, symbols = compile_templates(source, arch, list(names.values()))
        self._module = Module(cubin)
        self._kernels = {op: self._module.kernel(symbols[name]) for op, name in names.items()}
        for kernel in self._kernels.values():
            kernel.divide_memory(shared_bytes(config))

    def __getitem__(self, op: str) -> Kernel:
        return self._kernels[op]

    def close(self) -> None:
        self._module.close()
